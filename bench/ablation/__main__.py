"""The paper's ablation at toy scale: models of under a million parameters learn from rehearsed trajectories, and are
evaluated in worlds that they have not seen.

python -m bench.ablation [--quick] [--seeds N] [--device cpu|cuda] [--json FILE]
"""

import argparse
import json
import math
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

from bench.ablation.page import PAGE, write_section
from bench.ablation.variants import VARIANTS, Sizes, Variant, tuned

_MOST_TOKENS = 64
"""Of one turn; the rehearsal's have about half of that."""


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
    """Of all turns: those with an action that the world refuses, or with none."""
    repeated: float
    """Of the turns after such a one: those that try the same again, word for word. NaN if there is none."""
    recovered: float
    """Of the stretches of such turns: those that end with an action that the world takes. NaN if there is none."""
    loss: float
    """Mean training loss at the end, in nats per trained token."""
    seconds: float
    """Training alone."""
    evaluated: float
    """Seconds that the evaluation took."""


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
    from bench.ablation.worlds import trajectories, write_worlds
    from refinesynth.chat import to_messages

    made = list(islice(trajectories(f"seed {seed} train"), sizes.conversations))
    data = folder / f"{seed}.jsonl"
    data.write_bytes(b"".join(one.to_json() + b"\n" for one in made))
    worlds = write_worlds(folder / "held-out.jsonl", (f"held out {at}" for at in range(sizes.worlds)))
    tokenizer = trained_tokenizer(message.content for one in made for message in to_messages(one))
    model = save_untrained(tokenizer, folder / f"{seed}-untrained", seed=seed, width=sizes.width, layers=sizes.layers)
    scores: list[Score] = []
    for variant in VARIANTS:
        output = folder / f"{seed}-{variant.name.replace(' ', '-')}"
        began = time.monotonic()
        result = tuned(variant, data=data, model=model, output=output, sizes=sizes, seed=seed, device=device)
        seconds = time.monotonic() - began
        measured = _evaluated(output, worlds, sizes, device=device)
        evaluated = time.monotonic() - began - seconds
        shutil.rmtree(output)
        scores.append(Score(variant.name, seed, **measured, loss=result.loss, seconds=seconds, evaluated=evaluated))
        _say(str(scores[-1]))
    return scores


def _evaluated(model: Path, worlds: Path, sizes: Sizes, *, device: str) -> dict[str, float]:
    """How the model in a folder plays, in percent: greedily, through Inspect's provider of local models."""
    from bench.ablation.worlds import MOST_ACTIONS
    from refinesynth.evaluate.comparing.reading import read_evaluation
    from refinesynth.evaluate.evaluating import Evaluation, evaluate

    asked = Evaluation(
        model=str(model),
        tasks=f"worlds:{worlds}",
        output=model / "evaluation",
        steps=MOST_ACTIONS,
        max_tokens=_MOST_TOKENS,
        # All worlds at once: a batch takes seconds however small it is.
        environments=sizes.worlds,
        settings={"device": device, "batch_size": sizes.worlds},
    )
    evaluate(asked, display="none")
    (played,) = read_evaluation(asked.folder)
    if played.remarks:
        raise RuntimeError(f"the evaluation of {model.name} is not complete: {'; '.join(played.remarks)}")
    counts, rates = played.counts, played.counts.rates
    shares = {
        "success": played.means("success").mean(),
        "progress": played.means("progress").mean(),
        "refused": (counts.refused + counts.format_errors) / counts.turns,
        "repeated": rates["repeats_failed_action"],
        "recovered": rates["recovers"],
    }
    return {name: math.nan if share is None else 100 * float(share) for name, share in shares.items()}


def _report(scores: Sequence[Score], sizes: Sizes, *, minutes: float) -> str:
    from bench.__main__ import surroundings

    head = (
        "| | success | progress | refused | repeated after a refusal | recovered | paper: success | paper: progress |"
    )
    rows = [_row(variant, [score for score in scores if score.variant == variant.name]) for variant in VARIANTS]
    table = "\n".join([head, "| --- |" + " ---: |" * 7, *rows])
    return (
        f"{surroundings()} {minutes:.0f} minutes.\n\n"
        f"Models of {sizes.layers} layers and width {sizes.width}, from scratch, {sizes.seeds} seeds; of each seed all four variants begin "
        f"with the same weights and see the same {sizes.conversations:,} trajectories {sizes.epochs:g} times in the same order. Then "
        f"`refinesynth.evaluate` plays each, greedily, in the same {sizes.worlds} worlds that none has seen, with at most 30 actions. Percent, with "
        "the standard deviation over seeds. Refused is of all turns; repeated, word for word, of the turns after a refused one; recovered, of the "
        "stretches of refused turns, those that end with an action that is taken. "
        "The paper's figures are means over its five tasks at 8,000 trajectories.\n\n"
        f"{table}"
    )


def _row(variant: Variant, scores: Sequence[Score]) -> str:
    names = ("success", "progress", "refused", "repeated", "recovered")
    cells = [_spread([getattr(score, name) for score in scores]) for name in names]
    paper = [f"{figure:.1f}" for figure in variant.paper]
    return f"| {' | '.join([variant.name, *cells, *paper])} |"


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
