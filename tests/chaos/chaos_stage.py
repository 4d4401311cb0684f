"""What runs in hostile surroundings have in common: backends that do not wait long, and what must hold of a run
folder."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson
from aiohttp import web
from faulty_server import FAULTS, faulty_app
from spoiling import SPOILING, spoils

import refinesynth as rs
from refinesynth.rehearsal import Faults, Rehearsal

STATUSES = (429, 500, 502, 503, 529)

KINDS = (*FAULTS, *sorted(SPOILING))
"""What may go wrong beside a status."""

PATHS = ("litellm", "direct")
"""The ways to a server."""


def backend(address: str, *, path: str = "litellm", **settings: Any) -> rs.Backend:
    """The rehearsal at `address`, asked with short pauses and few seconds of patience."""
    patience: dict[str, Any] = {"timeout": 1.0, "longest_wait": 0.02, "outage": 10.0}
    patience |= {"retries": 20, "content_retries": 6}
    given = {"model": "openai/rehearsal", "base_url": f"{address}/v1", "path": path, **patience, **settings}
    return rs.Backend.model_validate(given)


def served(faults: Mapping[int | str, float], *, seed: int = 0) -> web.Application:
    """An application that rehearses without faults of its own and fails as told."""
    return faulty_app(Rehearsal(faults=Faults.none()), faults, seed=seed)


def failing(shares: Mapping[str | int, float], *, seed: int) -> tuple[web.Application, Counter[str]]:
    """An application that rehearses and fails in these ways, and how often it has spoilt an answer so far."""
    app = served({kind: share for kind, share in shares.items() if kind not in SPOILING}, seed=seed)
    return app, spoils(app, {kind: shares[kind] for kind in shares if kind in SPOILING}, seed=seed)  # pyright: ignore[reportArgumentType]


async def counts(address: str) -> dict[str, int]:
    """How the server's requests have ended so far."""
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{address}/stats")).json()["by_status"]


def lines(path: Path) -> list[bytes]:
    """The lines of a JSONL file, each one JSON value and one line for every reader."""
    content = path.read_bytes()
    assert not content or content.endswith(b"\n"), path.name
    found = content.split(b"\n")[:-1]
    # Python's text reader knows more ends of a line than any other.
    assert content.decode().splitlines() == [line.decode() for line in found], path.name
    for line in found:
        assert not any(byte < 0x20 for byte in line), path.name
        orjson.loads(line)
    return found


def check_folder(folder: Path) -> None:
    """All that must hold of a run folder, however the run went."""
    for path in folder.glob("*.jsonl"):
        lines(path)
    if not (folder / "trajectories.jsonl").exists():
        return
    ids: set[str] = set()
    for line in lines(folder / "trajectories.jsonl"):
        trajectory = rs.Trajectory.from_json(line)
        assert rs.rules.verify(trajectory.draft(), rs.rules.strict()).accepted
        assert rs.rules.verify(rs.Draft(script=trajectory.script), rs.rules.script()).accepted
        ids.add(trajectory.id)
    assert len(ids) == len(lines(folder / "trajectories.jsonl"))
