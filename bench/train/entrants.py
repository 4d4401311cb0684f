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

    def load(
        data: Path,
        *,
        packing: bool,
        rows: int = 1,
        mask_history: bool = False,
        marked: bool = False,
        best: bool = False,
        flat: bool = False,
    ) -> Load:
        # A packed row holds as many conversations as fit; padded ones come `scale.rows` at a time.
        return Load(
            model=str(materials.model),
            data=str(data),
            out="",
            conversations=scale.batch,
            rows=rows,
            max_length=scale.max_length,
            device=device,
            packing=packing,
            template=str(materials.template) if marked else None,
            mask_history=mask_history,
            best=best,
            flat=flat,
        )

    packs = max(1, round(scale.batch * materials.tokens / materials.conversations / scale.max_length))

    def packed(data: Path, *, marked: bool = False, best: bool = False) -> Load:
        return replace(load(data, packing=True, marked=marked, best=best), conversations=packs)

    ours = (sys.executable, "-m", "bench.train.our_job")
    return (
        Entrant(
            name="ours, packed",
            command=ours,
            load=load(materials.ours, packing=True),
            tokens=materials.tokens,
            is_ours=True,
            rivals=(_PACKED, _FLAT),
        ),
        Entrant(
            name="ours, padded",
            command=ours,
            load=load(materials.ours, packing=False),
            tokens=materials.tokens,
            is_ours=True,
            rivals=(_PADDED,),
        ),
        _other(_PACKED, "trl", packed(materials.trl, marked=True, best=True), materials.tokens),
        _other(
            _FLAT,
            "trl",
            load(materials.trl, packing=False, rows=scale.rows, marked=True, best=True, flat=True),
            materials.tokens,
        ),
        _other(
            _PADDED,
            "trl",
            load(materials.trl, packing=False, rows=scale.rows, marked=True, best=True),
            materials.tokens,
        ),
        _other("TRL as it comes, packed", "trl", packed(materials.trl, marked=True), materials.tokens),
        _other(
            "TRL as it comes, padded",
            "trl",
            load(materials.trl, packing=False, rows=scale.rows, marked=True),
            materials.tokens,
        ),
        _other(
            "LLaMA-Factory, a record per turn",
            "llamafactory",
            load(materials.split, packing=False, rows=scale.rows, mask_history=True),
            materials.split_tokens,
            note="the mask that it can express, on an eighth of the conversations",
        ),
        _other(
            "LLaMA-Factory, padded",
            "llamafactory",
            load(materials.unmasked, packing=False, rows=scale.rows),
            materials.tokens,
            note="mistakes are trained",
        ),
        _other(
            "LLaMA-Factory, packed",
            "llamafactory",
            packed(materials.unmasked),
            materials.tokens,
            note="mistakes are trained",
        ),
    )


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
