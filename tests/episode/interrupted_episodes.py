"""Episodes whose process is killed after so many completions, and begun again with what was remembered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import samples
from pydantic_ai.models import Model

from refinesynth.backends import BackendSpec, Role, resolve_roles
from refinesynth.client import open_models
from refinesynth.episode import EpisodeOutcome, EpisodeSettings, play_episode
from refinesynth.journal.journal_values import PaidCompletion
from refinesynth.rehearsal import Rehearsal
from refinesynth.trajectory import Persona

FAULTY = "rehearsal:invalid_json=0.2,missing_keys=0.1,wrong_parameters=0.1,natural_mistake=0.2"
PERSONA = Persona(text="A night porter in a small hotel who repairs clocks.")


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Memory(samples.Memory):
    """Remembers; after so many completions of this process, it is killed."""

    lives: int = 10**6

    async def keep(self, *paid: PaidCompletion) -> None:
        (one,) = paid
        assert (one.role, one.step, one.digest) not in self.kept
        self.kept[one.role, one.step, one.digest] = one
        self.lives -= 1
        if not self.lives:
            raise Killed


async def continued(
    settings: EpisodeSettings, *, index: int, lives: int, backend: BackendSpec = FAULTY
) -> EpisodeOutcome:
    """The outcome in one piece, which is also that of an episode killed after every `lives` completions; nothing is
    asked twice."""
    asked: list[object] = []

    async def episode(memory: Memory) -> EpisodeOutcome:
        rehearsal = Rehearsal()

        async def call(**request: Any) -> object:
            asked.append((request["seed"], request["model"], request["messages"]))
            await anyio.lowlevel.checkpoint()
            return await rehearsal(**request)

        models: Mapping[Role, Model] = open_models(resolve_roles(backend), call=call)
        return await play_episode(PERSONA, index=index, settings=settings, models=models, memory=memory)

    whole = await episode(Memory())
    in_one_piece, asked = asked, []
    memory, deaths = Memory(lives=lives), 0
    while True:
        try:
            outcome = await episode(memory)
            break
        except Killed:
            deaths += 1
            memory.lives = lives
    assert deaths == len(in_one_piece) // lives
    assert outcome.to_json() == whole.to_json()
    assert asked == in_one_piece
    return whole
