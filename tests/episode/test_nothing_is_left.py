"""What an episode made is freed with it, without a look for garbage: a long run takes no more memory than a short
one."""

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import refinesynth as rs
from refinesynth.client.session import Session
from refinesynth.episode.play import EpisodeRecord
from refinesynth.rehearsal.replayed_history import Position
from refinesynth.rehearsal.scene import Scene
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, PlayerTurn, Script, Trajectory
from refinesynth.world import Ruling, World
from refinesynth.world.compiled_action import CompiledAction, CompiledRequirement
from refinesynth.world.explore import Node
from refinesynth.world.expression import Expression
from refinesynth.world.ground_actions import Fact, GroundAction

pytestmark = pytest.mark.process

OF_AN_EPISODE = frozenset({
    ActionSpec, Draft, DungeonMasterTurn, PlayerTurn, Script, Trajectory, EpisodeRecord, Session, Position, Scene,
    World, Ruling, CompiledAction, CompiledRequirement, Expression, Node, Fact, GroundAction,
})  # fmt: skip

FEW_OBJECTS = 500
"""More than what a run leaves that depends on how its tasks took turns, and a tenth of what the check of one world used
to leave."""

PLAYS: dict[str, dict[str, Any]] = {
    "live": {"play": "live"},
    "narrated": {"play": "narrated"},
    "grounded": {"play": "grounded", "grounding": rs.Grounding(transient=0.2), "branches": 2},
}


@contextmanager
def uncollected() -> Generator[None]:
    """Without any garbage from before, and without collections."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(folder: Path, numbers: range, play: str) -> None:
    people = [f"Somebody with the number {number} who likes order" for number in numbers]
    # More than there can be, so that nobody is cancelled: what a cancelled task was at hangs on its traceback until the
    # next look.
    result = anyio.run(partial(rs.synthesize, people, n=2 * len(people) + 1, output=folder, **PLAYS[play]))
    assert len(result) > 0


@pytest.mark.parametrize("play", PLAYS)
def test_an_episode_leaves_nothing_behind(play: str, tmp_path: Path) -> None:
    # In a process of its own: what measures coverage takes its probes out while a run goes on, and keeps what it finds
    # meanwhile.
    done = subprocess.run([sys.executable, __file__, play, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def look(play: str, folder: Path) -> None:
    # The first of a process brings the prompts' examples, which stay.
    run(folder / "first", range(1), play)
    ambient = [it for it in gc.get_objects() if type(it) in OF_AN_EPISODE]
    known = set(map(id, ambient))
    with uncollected():
        run(folder / "one", range(1, 2), play)
        left = Counter(
            type(it).__name__ for it in gc.get_objects() if type(it) in OF_AN_EPISODE and id(it) not in known
        )
        assert left == Counter()
        after_one = gc.collect()
        run(folder / "three", range(2, 5), play)
        assert gc.collect() <= after_one + FEW_OBJECTS


if __name__ == "__main__":
    look(sys.argv[1], Path(sys.argv[2]))
