"""Plays on which the arms are trained, and the starts from which they are tested.

The worlds and their teacher are those of `bench.ablation.families`. Only plays that the default rules accept are kept.
Every arm of a seed has the same worlds in the same order.
"""

import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from bench.ablation.families import FAMILIES, Chain, Step, chain_of, play_chain, said
from bench.ablation.playing import as_trajectory
from refinesynth import rules
from refinesynth.chat import to_messages
from refinesynth.episode.ruled_action import RuledAction
from refinesynth.settings.mistakes import Mistakes, prompted, spread
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory
from refinesynth.world import World

KEPT = "message"
"""The family of worlds whose mistakes no arm sees: it occurs in clean plays alone."""
TUNED = ("bring", "wash", "unlock", "machine")
DEPTHS = (1, 2, 3)
"""Player's turns, from 0, of the imposed mistakes."""
_RULES = rules.grounded()


class Sizes(NamedTuple):
    """Sizes of the experiment; results of other sizes do not compare."""

    plays: int = 176
    """Of each arm, the kept family's included."""
    kept: int = 22
    """Of these, clean plays of the kept family."""
    worlds: int = 32
    """Held-out worlds of the tuned families, each with an own, an imposed and a clean start."""
    kept_worlds: int = 16
    """Held-out worlds of the kept family, each with an imposed and a clean start."""


SIZES: Mapping[str, Sizes] = {
    "experiment": Sizes(),
    "large": Sizes(plays=480, kept=48, worlds=64, kept_worlds=32),
    "pilot": Sizes(plays=24, kept=4, worlds=6, kept_worlds=3),
    "smoke": Sizes(plays=6, kept=2, worlds=1, kept_worlds=1),
}


@dataclass(frozen=True)
class Arm:
    """One way to train on the plays of a seed."""

    plays: tuple[str, ...]
    """Files of plays, taken by turns: of two, the even worlds come from the first."""
    loss_on: str = "refinement"
    about: str = ""


ARMS: Mapping[str, Arm | None] = {
    "full": Arm(("full",), about="mistakes spread evenly; all turns trained but mistakes"),
    "repair masked": Arm(("full",), "no_refinement_turns", "the same; the turn behind a mistake gives no loss"),
    "clean": Arm(("clean",), about="the same worlds, played without mistakes"),
    "unrelated repair": Arm(("unrelated",), about="behind each mistake an accepted action that does not answer it"),
    "unrelated repair masked": Arm(("unrelated",), "no_refinement_turns", "the same; that action gives no loss"),
    "erroneous loss": Arm(("full",), "all_turns", "*full*, mistakes trained too"),
    "half clean": Arm(("full", "clean"), about="every other world played without mistakes"),
    "untuned": None,
}
"""In the order in which they are run; the others are compared with the first."""


def _chains(families: Sequence[str], prefix: str) -> Iterator[tuple[str, int, Chain]]:
    """Worlds of these families by turns, without end: the name of a world, its number, and the world."""
    by_name = {family.name: family for family in FAMILIES}
    for number in count():
        name = f"{prefix} {number}"
        yield name, number, chain_of(by_name[families[number % len(families)]], name)


def _accepted(families: Sequence[str], prefix: str, mistakes: Mistakes | None) -> Iterator[tuple[Chain, Trajectory]]:
    """Plays that the default rules accept, with their worlds."""
    for name, number, chain in _chains(families, prefix):
        play = play_chain(name, chain, mistakes, episode=number)
        if rules.verify(play, _RULES).accepted:
            yield chain, play


def unrelated(chain: Chain, play: Trajectory) -> Trajectory | None:
    """The play with, behind each mistake, an action that the world accepts and that brings the goal no nearer.

    The Player goes to a place that the task does not name, or back from it. Then it continues as if the mistake had not
    been made; where the next action needs the place that was left, it goes back first. None where it is there and has
    been nowhere else.
    """
    script = chain.script
    world, state, progress = World(script), script.environment, 0.0
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    environment: dict[str, Any] = script.environment
    others = {thing: place for thing, place in environment["at"].items() if thing != environment["key"]}
    thing, place = next(iter(others.items()))
    aside = Step(f"The {thing} is at {place}.", "go", place)

    def act(turn: PlayerTurn) -> bool:
        """Play a turn; return False if the world refuses it."""
        nonlocal state, progress
        ruled = RuledAction(turn.action, world.step(state, turn.action), (), progress)
        turns.extend((turn, ruled.turn(ruled.thought, ruled.text)))
        state, progress = ruled.ruling.state, ruled.ruling.progress
        return ruled.ruling.kind is None

    gone: Step | None = None
    """The way to the place of the next action, where that is no way itself."""
    done = 0
    for turn in play.turns:
        if not isinstance(turn, PlayerTurn):
            continue
        if act(turn):
            gone = chain.steps[done] if chain.steps[done].verb == "go" else gone
            done += 1
            continue
        is_away = state["you"] == aside.value
        if is_away and gone is None:
            return None
        act(said(chain, gone if is_away and gone else aside))
        if chain.steps[done].verb != "go" and gone and not is_away:
            act(said(chain, gone))
    return as_trajectory(play.id, script, turns, play.provenance.seed)


def training(seed: int, sizes: Sizes) -> dict[str, list[Trajectory]]:
    """Of each kind of play as many as the sizes say, in the same worlds."""
    wanted, prefix = sizes.plays - sizes.kept, f"seed {seed}"
    plays: dict[str, list[Trajectory]] = {"full": [], "clean": [], "unrelated": []}
    for chain, full in islice(_accepted(TUNED, prefix, spread()), 10 * wanted):
        clean = play_chain(full.id, chain, None, episode=full.provenance.seed)
        trio = (full, clean, unrelated(chain, full))
        if len(plays["full"]) == wanted:
            break
        if all(play and rules.verify(play, _RULES).accepted for play in trio):
            for kind, play in zip(plays, trio, strict=True):
                plays[kind] += [play] if play else []
    if len(plays["full"]) < wanted:
        raise RuntimeError(f"seed {seed} has {len(plays['full'])} of {wanted} plays that are accepted in all arms")
    kept = [play for _, play in islice(_accepted((KEPT,), f"{prefix}, kept", None), sizes.kept)]
    every = wanted // sizes.kept
    return {
        # With the kept family's plays at equal distances.
        kind: [
            play
            for index, tuned in enumerate(chosen)
            for play in (
                (kept[index // every], tuned) if index % every == 0 and index // every < sizes.kept else (tuned,)
            )
        ]
        for kind, chosen in plays.items()
    }


def _record(play: Trajectory) -> dict[str, Any]:
    return {"id": play.id, "messages": [message._asdict() for message in to_messages(play)]}


def _testing(sizes: Sizes) -> list[dict[str, Any]]:
    """Starts: a script, the turns behind which the model goes on, and a kind."""
    starts: list[dict[str, Any]] = []

    def begin(kind: str, chain: Chain, before: Sequence[PlayerTurn | DungeonMasterTurn] = ()) -> None:
        script = orjson.loads(chain.script.to_json())
        starts.append({"kind": kind, "script": script, "before": [turn.model_dump(mode="json") for turn in before]})

    for families, worlds, depths in ((TUNED, sizes.worlds, DEPTHS), ((KEPT,), sizes.kept_worlds, (1,))):
        kept = "kept family, " if families == (KEPT,) else ""
        for name, number, chain in islice(_chains(families, f"held out {kept}".strip()), worlds):
            begin(f"{kept}clean", chain)
            if not kept:
                begin("own", chain)
            depth = depths[number % len(depths)]
            turns = play_chain(name, chain, prompted(depth), episode=number).turns[: 2 * depth + 2]
            if not getattr(turns[-1], "flagged", False):
                raise RuntimeError(f"the world {name} has no mistake on turn {depth}")
            begin(f"{kept}imposed" if kept else f"imposed {depth}", chain, turns)
    return starts


def write(folder: Path, seed: int, sizes: Sizes) -> None:
    """Write the plays of a seed and the starts, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "starts.jsonl.gz").exists():
        _write(folder / "starts.jsonl.gz", _testing(sizes))
    if not (folder / f"seed-{seed}-full.jsonl.gz").exists():
        for kind, plays in reversed(training(seed, sizes).items()):
            _write(folder / f"seed-{seed}-{kind}.jsonl.gz", [_record(play) for play in plays])


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(b"".join(orjson.dumps(record) + b"\n" for record in records), mtime=0))
    part.replace(path)


def read(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def records_of(arm: Arm, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The plays of an arm."""
    files = [read(folder / f"seed-{seed}-{kind}.jsonl.gz") for kind in arm.plays]
    return [files[index % len(files)][index] for index in range(len(files[0]))]


def digest_of(records: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(b"\n".join(orjson.dumps(record) for record in records)).hexdigest()[:16]
