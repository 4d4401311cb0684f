"""Who trains: refinesynth, TRL and LLaMA-Factory, each in the ways that it has."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.train.load import Load
from bench.train.materials import Materials, Scale
from bench.train.setup import VENVS

_HERE = Path(__file__).parent
_PACKED, _FLAT, _PADDED = "TRL at its best, packed", "TRL at its best, padding-free", "TRL at its best, padded"


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One trainer with its settings."""

    name: str
    command: Sequence[str | Path]
    """What is typed, but for the load's file at its end."""
    load: Load
    tokens: int
    """Of the conversations that it trains on, each counted once."""
    note: str = ""
    missing: str | None = None
    """Why it cannot be run here."""
    is_ours: bool = False
    rivals: tuple[str, ...] = ()
    """Names of those that it is compared with: the best of them is its reference, in speed and in memory."""


def entrants(materials: Materials, scale: Scale, *, device: str) -> tuple[Entrant, ...]:
    """All of them, the reference among them."""

    # A packed row holds as many conversations as fit; padded ones come `scale.rows` at a time, but ours, which finds
    # that itself.
    packs = max(1, round(scale.batch * materials.tokens / materials.conversations / scale.max_length))
    padded = Load(
        model=str(materials.model),
        data=str(materials.unmasked),
        out="",
        conversations=scale.batch,
        rows=scale.rows,
        max_length=scale.max_length,
        device=device,
    )
    packed = replace(padded, conversations=packs, rows=1, packing=True)
    ours = replace(padded, data=str(materials.ours), rows=1)
    marked = {"data": str(materials.trl), "template": str(materials.template)}
    by_turn = replace(padded, data=str(materials.split), mask_history=True)
    tokens = materials.tokens
    return (
        _ours("ours, packed", replace(ours, packing=True), tokens, rivals=(_PACKED, _FLAT)),
        _ours("ours, padded", ours, tokens, rivals=(_PADDED,)),
        _other(_PACKED, "trl", replace(packed, **marked, best=True), tokens),
        _other(_FLAT, "trl", replace(padded, **marked, best=True, flat=True), tokens),
        _other(_PADDED, "trl", replace(padded, **marked, best=True), tokens),
        _other("TRL as it comes, packed", "trl", replace(packed, **marked), tokens),
        _other("TRL as it comes, padded", "trl", replace(padded, **marked), tokens),
        _other(
            "LLaMA-Factory, a record per turn",
            "llamafactory",
            by_turn,
            materials.split_tokens,
            note="the mask that it can express, on an eighth of the conversations",
        ),
        _other("LLaMA-Factory, padded", "llamafactory", padded, tokens, note="mistakes are trained"),
        _other("LLaMA-Factory, packed", "llamafactory", packed, tokens, note="mistakes are trained"),
    )


def _ours(name: str, load: Load, tokens: int, *, rivals: tuple[str, ...]) -> Entrant:
    command = (sys.executable, "-m", "bench.train.our_job")
    return Entrant(name=name, command=command, load=load, tokens=tokens, is_ours=True, rivals=rivals)


def _other(name: str, venv: str, load: Load, tokens: int, *, note: str = "") -> Entrant:
    python = (VENVS / venv).absolute() / "bin" / "python"
    return Entrant(
        name=name,
        command=(python, _HERE / f"{venv}_job.py"),
        load=load,
        tokens=tokens,
        note=note,
        missing=None if python.exists() else "not installed: python -m bench.train.setup",
    )
