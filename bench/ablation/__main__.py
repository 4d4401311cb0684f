"""The paper's ablation at toy scale: models of under a million parameters learn from rehearsed trajectories, then play.

python -m bench.ablation [--quick] [--seeds N] [--device cpu|cuda] [--json FILE]
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bench.ablation.page import PAGE, write_section
from bench.ablation.variants import VARIANTS, Sizes, Variant, tuned


@dataclass(frozen=True)
class Score:
    """How one model played, in percent."""

    variant: str
    seed: int
    success: float
    """Worlds whose goal was reached within thirty actions."""
    progress: float
    """Mean of the most that was reached of each world's conditions."""
    refused: float
    """Of all actions."""
    repeated: float
    """Of all actions: those that repeat one that was refused, with nothing accepted since."""
    loss: float
    """Mean training loss at the end, in nats per trained token."""
    seconds: float
    """Training alone."""


def main() -> int:
    """0 when every variant was trained and has played."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="see that it runs, in two or three minutes; writes nothing"
    )
    parser.add_argument("--seeds", type=int, help="models of each variant")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="also write every model's score to this file")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sizes = Sizes.quick() if asked.quick else Sizes()
    if asked.seeds is not None:
        sizes = replace(sizes, seeds=asked.seeds)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        scores = [
            score for seed in range(sizes.seeds) for score in _one_seed(Path(folder), sizes, seed, device=asked.device)
        ]
    report = _report(scores, sizes, minutes=(time.monotonic() - start) / 60)
    print(report)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(score) for score in scores], indent=1), encoding="utf-8")
    if not asked.quick:
        write_section("bench.ablation", "The paper's ablation, at toy scale", report)
        _say(f"written to {PAGE}")
    return 0


def _one_seed(folder: Path, sizes: Sizes, seed: int, *, device: str) -> list[Score]:
    """All variants on the same trajectories, from the same untrained model."""
    from bench.ablation.speaking import save_untrained, trained_tokenizer
    from bench.ablation.worlds import trajectories
    from refinesynth.chat import to_messages

    made = list(islice(trajectories(f"seed {seed} train"), sizes.conversations))
    data = folder / f"{seed}.jsonl"
    data.write_bytes(b"".join(one.to_json() + b"\n" for one in made))
    tokenizer = trained_tokenizer(message.content for one in made for message in to_messages(one))
    model = save_untrained(tokenizer, folder / f"{seed}-untrained", seed=seed, width=sizes.width, layers=sizes.layers)
    scores: list[Score] = []
    for variant in VARIANTS:
        output = folder / f"{seed}-{variant.name.replace(' ', '-')}"
        began = time.monotonic()
        result = tuned(variant, data=data, model=model, output=output, sizes=sizes, seed=seed, device=device)
        seconds = time.monotonic() - began
        score = _played(output, variant, sizes, seed=seed, loss=result.loss, seconds=seconds, device=device)
        shutil.rmtree(output)
        _say(f"{score}; played in {time.monotonic() - began - seconds:.0f} s")
        scores.append(score)
    return scores


def _played(
    folder: Path, variant: Variant, sizes: Sizes, *, seed: int, loss: float, seconds: float, device: str
) -> Score:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from bench.ablation.playing import Player

    models: Any = AutoModelForCausalLM
    tokenizers: Any = AutoTokenizer
    player = Player(models.from_pretrained(folder).to(device), tokenizers.from_pretrained(folder))
    plays = player.play([f"held out {at}" for at in range(sizes.worlds)])
    actions = sum(play.actions for play in plays)
    return Score(
        variant=variant.name,
        seed=seed,
        success=100 * statistics.mean(play.succeeded for play in plays),
        progress=100 * statistics.mean(play.progress for play in plays),
        refused=100 * sum(play.refused for play in plays) / actions,
        repeated=100 * sum(play.repeated for play in plays) / actions,
        loss=loss,
        seconds=seconds,
    )


def _report(scores: Sequence[Score], sizes: Sizes, *, minutes: float) -> str:
    from bench.__main__ import surroundings

    head = "| | success | progress | refused actions | repeated refused actions | paper: success | paper: progress |"
    rows = [_row(variant, [score for score in scores if score.variant == variant.name]) for variant in VARIANTS]
    table = "\n".join([head, "| --- |" + " ---: |" * 6, *rows])
    return (
        f"{surroundings()} {minutes:.0f} minutes.\n\n"
        f"Models of {sizes.layers} layers and width {sizes.width}, from scratch, {sizes.seeds} seeds; of each seed all four variants begin "
        f"with the same weights and see the same {sizes.conversations:,} trajectories {sizes.epochs:g} times in the same order. Then each plays "
        f"the same {sizes.worlds} worlds that none has seen, greedily, with at most 30 actions. Percent, with the standard deviation over seeds. "
        "The paper's figures are means over its five tasks at 8,000 trajectories.\n\n"
        f"{table}"
    )


def _row(variant: Variant, scores: Sequence[Score]) -> str:
    cells = [
        _spread([getattr(score, name) for score in scores]) for name in ("success", "progress", "refused", "repeated")
    ]
    paper = [f"{figure:.1f}" for figure in variant.paper]
    return f"| {' | '.join([variant.name, *cells, *paper])} |"


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
