"""An episode that was interrupted goes on where it was: nothing is asked twice, and the outcome is that of one piece."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from pydantic_ai.models import Model

from refinesynth import rules
from refinesynth.backends import Role, open_models, resolve_roles
from refinesynth.backends.rehearsal import Rehearsal
from refinesynth.episode import EpisodeOutcome, EpisodeSettings, play_episode
from refinesynth.journal.paid import Paid
from refinesynth.prompts import Prompts
from refinesynth.trajectory import Persona, Play

FAULTY = "rehearsal:invalid_json=0.2,missing_keys=0.1,wrong_parameters=0.1,natural_mistake=0.2"
PERSONA = Persona(text="A night porter in a small hotel who repairs clocks.")


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Memory:
    """Remembers; after so many completions of this process, it is killed."""

    kept: dict[tuple[str, int, bytes], Paid] = field(default_factory=dict[tuple[str, int, bytes], Paid])
    lives: int = 10**6

    def recall(self, role: str, step: int, digest: bytes) -> Paid | None:
        return self.kept.get((role, step, digest))

    async def keep(self, paid: Paid) -> None:
        assert (paid.role, paid.step, paid.digest) not in self.kept
        self.kept[paid.role, paid.step, paid.digest] = paid
        self.lives -= 1
        if not self.lives:
            raise Killed


def settings_for(play: Play, seed: int, **given: Any) -> EpisodeSettings:
    chain = rules.grounded() if play == "grounded" else rules.strict()
    return EpisodeSettings(rules=chain, script_rules=rules.script(), prompts=Prompts(), play=play, seed=seed, **given)


@pytest.mark.parametrize("play", ["live", "narrated"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lives", [1, 3])
async def test_an_interrupted_episode_is_continued_turn_by_turn(play: Play, seed: int, lives: int) -> None:
    await continued(settings_for(play, seed), seed, lives)


@pytest.mark.parametrize(
    ("seed", "given"),
    [
        (0, {}),
        (1, {"transient": 0.3}),
        (2, {"terse": True, "transient": 0.3}),
        (3, {"two_steps": True}),
        (4, {"branches": 3}),
    ],
)
async def test_so_is_one_whose_world_is_executed(seed: int, given: dict[str, Any]) -> None:
    """Chance included: an action that failed for a moment fails again when the episode is played to where it was."""
    await continued(settings_for("grounded", seed, **given), seed, lives=3)


async def continued(settings: EpisodeSettings, seed: int, lives: int) -> None:
    asked: list[object] = []

    async def episode(memory: Memory) -> EpisodeOutcome:
        rehearsal = Rehearsal()

        async def call(**request: object) -> object:
            asked.append((request["seed"], request["messages"]))
            await anyio.lowlevel.checkpoint()
            return await rehearsal(**request)

        models: dict[Role, Model] = dict(open_models(resolve_roles(FAULTY), call=call))
        return await play_episode(PERSONA, index=seed, settings=settings, models=models, memory=memory)

    whole = await episode(Memory())
    in_one_piece, asked = asked, []
    memory = Memory(lives=lives)
    deaths = 0
    while True:
        try:
            outcome = await episode(memory)
            break
        except Killed:
            deaths += 1
            memory.lives = lives
    assert deaths == len(in_one_piece) // lives
    assert outcome == whole
    assert all(rules.verify(one.draft(), settings.rules).accepted for one in outcome.trajectories)
    assert asked == in_one_piece
