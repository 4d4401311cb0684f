"""Training throughput beside TRL and LLaMA-Factory: the same conversations, the same model, one after the other.

python -m bench.train [--quick] [--device cpu|cuda]; once before, python -m bench.train.setup
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.figures import Figure, Section
from bench.measuring import program
from bench.train.entrants import Entrant, entrants
from bench.train.materials import CPU, GPU, Materials, Scale, make

_PEAK = 989e12
"""Dense bf16 operations a second of an H100 or H200."""


@dataclass(frozen=True)
class Timed:
    """One pass over the data."""

    seconds: float
    steps: int
    memory: float
    """MiB, beside the weights; on a GPU with them."""


def measure(*, quick: bool, device: str = "cpu") -> Section:
    """Every trainer once; on a GPU, which is timed by the clock, every trainer again, and the faster one counts."""
    scale = GPU if device == "cuda" else CPU
    with tempfile.TemporaryDirectory() as folder:
        materials = make(Path(folder), scale, conversations=16 if quick else scale.conversations)
        chosen = entrants(materials, scale, device=device)
        times: dict[str, list[Timed | str]] = {entrant.name: [] for entrant in chosen}
        for _ in range(1 if quick or device == "cpu" else 2):
            for entrant in chosen:
                times[entrant.name].append(_run(entrant, Path(folder)))
    figures = tuple(_figures(chosen, times, materials, scale, device=device))
    return Section(
        title=f"Training, on one {'GPU' if device == 'cuda' else 'CPU core'}",
        how=f"{materials.conversations} rehearsed conversations of {materials.tokens:,} tokens, {materials.trained / materials.tokens:.0%} of them trained; a "
        f"llama of {materials.parameters / 1e6:,.1f} million parameters, {scale.batch} conversations a step, rows of at most {scale.max_length:,} tokens, "
        f"{'bf16 under autocast with checkpointing' if device == 'cuda' else 'fp32'}; the second of two passes over the data. Tokens are those of the "
        "conversations: no padding, and none twice where a trainer needs one record per turn. Memory is the second pass's peak "
        f"{'with' if device == 'cuda' else 'beside'} the weights. Ratios are to TRL at its best, without padding or with it: of its rows the better one.",
        figures=figures,
    )


def _run(entrant: Entrant, folder: Path) -> Timed | str:
    """How long it took, or why it did not end."""
    if entrant.missing is not None:
        return entrant.missing
    out = Path(tempfile.mkdtemp(dir=folder))
    asked = out / "load.json"
    load = replace(entrant.load, out=str(out))
    load.save(asked)
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "DISABLE_VERSION_CHECK": "1",
        "WANDB_MODE": "disabled",
    }
    threads = {} if load.device == "cuda" else {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*entrant.command, asked], env={**os.environ, **quiet, **threads}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        print(ended.stderr[-3000:], file=sys.stderr)
        return f"failed with exit code {ended.returncode}"
    told = json.loads((out / "timed.json").read_bytes())
    print(
        f"{entrant.name}: {told['seconds']:.1f} s in {told['steps']} steps, {told['memory']:,.0f} MiB",
        file=sys.stderr,
        flush=True,
    )
    return Timed(**told)


def _figures(
    chosen: tuple[Entrant, ...], times: dict[str, list[Timed | str]], materials: Materials, scale: Scale, *, device: str
) -> Iterator[Figure]:
    def done(name: str) -> list[Timed]:
        return [timed for timed in times[name] if isinstance(timed, Timed)]

    def rate(entrant: Entrant) -> float | None:
        seconds = [timed.seconds for timed in done(entrant.name)]
        return entrant.tokens / min(seconds) if seconds else None

    def memory(entrant: Entrant) -> float | None:
        return min((timed.memory for timed in done(entrant.name)), default=None)

    for entrant in chosen:
        found = rate(entrant)
        steps = next((timed.steps for timed in done(entrant.name)), None)
        failed = next((timed for timed in times[entrant.name] if isinstance(timed, str)), "")
        notes = [entrant.note, f"{steps} steps" if steps else failed]
        if found is not None and device == "cuda":
            notes.append(f"{_utilisation(found, entrant, materials, scale):.0%} MFU")
        if found is not None:
            notes.append(f"{found * materials.trained / materials.tokens:,.0f} trained tokens/s")
        rivals = [other for other in chosen if other.name in entrant.rivals]
        yield Figure(
            what=entrant.name,
            value=found,
            unit="tokens/s",
            reference=max(filter(None, map(rate, rivals)), default=None),
            goal=1.0 if rivals else None,
            aim="at least",
            of_ratio=True,
            note=", ".join(filter(None, notes)),
        )
        yield Figure(
            what=f"{entrant.name}: memory",
            value=memory(entrant),
            unit="MiB",
            reference=min(filter(None, map(memory, rivals)), default=None),
            goal=1.0 if rivals else None,
            of_ratio=True,
        )


def _utilisation(rate: float, entrant: Entrant, materials: Materials, scale: Scale) -> float:
    """Share of the device's peak: forward and backward of real tokens, recomputation left out, the head where it is
    evaluated.

    A trainer that evaluates the head on trained tokens alone gets no credit for what it leaves out.
    """
    head = scale.width * scale.vocabulary
    body = materials.parameters - 2 * head
    share = materials.trained / materials.tokens if entrant.is_ours else 1.0
    # Of a token: two operations a weight, three times for forward and backward; attention looks back on half of its
    # conversation.
    attention = 6 * scale.layers * scale.width * materials.squares / materials.tokens
    return rate * (6 * (body + share * head) + attention) / _PEAK


def _device() -> str:
    """The command line's `--device`, taken out of it: the rest is every program's."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked, sys.argv[1:] = parser.parse_known_args()
    return str(asked.device)


if __name__ == "__main__":
    program(partial(measure, device=_device()))
