"""What the rehearsal answers in a run, so that a server can say it again at next to no cost."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import orjson

import refinesynth as rs
from bench.server import Recorded, digest

MODEL = "hosted_vllm/bench"
"""The model that is recorded, and has to be asked: requests to others have another shape."""


@dataclass(frozen=True)
class Recording:
    """One run."""

    answers: Recorded
    completions: int
    accepted: int


def people(count: int) -> list[str]:
    """So many different personas."""
    shipped = [persona.text for persona in rs.personas.shipped()]
    return [f"{shipped[at % len(shipped)]} (number {at})" for at in range(count)]


def record(
    personas: Sequence[str], *, play: Literal["live", "narrated"], mistakes: rs.Mistakes | None = None
) -> Recording:
    """Every answer of a run over these personas, in this process; about a millisecond and a half for each.

    Played again with the same personas, in the same order, a run finds all its answers.
    """
    return anyio.run(_record, personas, play, mistakes)


async def _record(
    personas: Sequence[str], play: Literal["live", "narrated"], mistakes: rs.Mistakes | None
) -> Recording:
    from refinesynth.backends import Backend
    from refinesynth.client.session import SESSION_HEADER
    from refinesynth.rehearsal import Rehearsal

    rehearsal = Rehearsal()
    bodies: dict[bytes, list[bytes]] = {}

    async def call(**request: Any) -> object:
        answer = await rehearsal(**request)
        session = request["extra_headers"][SESSION_HEADER].encode()
        bodies.setdefault(digest(request["messages"], session), []).append(orjson.dumps(answer))
        return answer

    with tempfile.TemporaryDirectory() as folder:
        result = await rs.synthesize(
            personas,
            # A run ends when enough are accepted: more than there are personas makes it play them all.
            n=len(personas) + 1,
            backend=Backend(model=MODEL, base_url="http://127.0.0.1:1/v1"),
            play=play,
            mistakes=mistakes,
            output=Path(folder) / "run",
            call=call,
        )
        completions = sum(len(each) for each in bodies.values())
        return Recording(answers=Recorded(bodies), completions=completions, accepted=len(result))
