"""Tunes the base model of a seed on one variant's data, with the package's own trainer."""

from pathlib import Path
from typing import Any, cast

from bench.ablation.variants import Variant, write_data
from refinesynth.train import Trainer

BATCH = 8
"""Conversations per optimizer step."""
LEARNING_RATE = 1e-3
_MAX_LENGTH = 1_024
"""Tokens; no play of these worlds is longer."""


def tuned(variant: Variant, data: Path, base: Path, output: Path, *, seed: int, tokens: int) -> dict[str, Any]:
    """One pass over as many records as hold so many tokens with loss; what came of it."""
    from transformers import AutoTokenizer

    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(base)

    def count_tokens(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False).input_ids)

    plays = write_data(variant, data, seed=seed, tokens=tokens, count_tokens=count_tokens)
    result = Trainer(
        model=base,
        data=data,
        output=output,
        max_length=_MAX_LENGTH,
        tokens_per_pack=4 * _MAX_LENGTH,
        held_out=0,
        epochs=1,
        batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        warmup=0.05,
        adam_betas=(0.9, 0.95),
        device="cpu",
        precision="fp32",
        gradient_checkpointing=False,
        seed=seed,
        evaluate_every="never",
        save_every="never",
        **variant.settings,
    ).train()
    return {"plays": plays, "loss": result.loss}
