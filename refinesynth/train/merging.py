"""`refinesynth train merge` from Python: an adapter becomes a model of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from refinesynth._version import __version__
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.atomic_write import write_text_file
from refinesynth.text.markdown import code_in_table as code
from refinesynth.train.adapter import SETTINGS, base_of, find_adapter
from refinesynth.train.card import hub_header, shown_name
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.starting import choose_accelerator
from refinesynth.train.folder import CARD
from refinesynth.train.settings import published

SaveDtype = Literal["auto", "bf16", "fp16", "fp32", "fp64"]


@dataclass(frozen=True, slots=True)
class Merged:
    """A model that was made of an adapter."""

    output: Path
    base: str
    """Folder or hub name of what the adapter was merged into."""
    dtype: str
    """Of the weights, by torch's name."""


def merge(
    adapter: str | Path,
    output: str | Path,
    *,
    model: str | None = None,
    save_dtype: SaveDtype = "auto",
    device: Literal["auto", "cpu"] = "cpu",
    trust_remote_code: bool = False,
) -> Merged:
    """Merge LoRA into its base, and write a whole model with tokenizer, chat template and card to `output`, a new or
    empty folder.

    The base is the one that the adapter names, or `model`; its weights are held once, in bf16 if it is in that, else in
    fp32. An adapter that was trained over quantized weights is merged into those that are not.

    Raises:
        InputError: No such adapter or base, they do not belong together, or the output holds something.
        TrainingError: It cannot be written, or what was written is not what was merged.
    """
    target = Path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"the output {str(output)!r} is there and not empty; give a new or empty folder with -o")
    if Path.cwd().is_relative_to(target.resolve()):
        # It is put into its place whole, and you would be left in a folder that is gone.
        raise InputError(f"the output {str(output)!r} is a folder that you are in; give a new one with -o")
    check_installed("train", "torch", "transformers", "peft")
    found = find_adapter(str(adapter))
    if found is None:
        raise InputError(
            f"there is no adapter {str(adapter)!r}: expected a folder that holds {SETTINGS} (what `refinesynth train --lora` writes), or "
            f"an adapter's name on the hub"
        )
    base = base_of(found, model)
    config = TrainConfig(
        data=("none",),
        model=base,
        revision=found.revision if model is None and not Path(base).is_dir() else None,
        output=str(target),
        save_dtype=save_dtype,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    choose_accelerator()
    from refinesynth.train.engine.library_output import libraries_silenced
    from refinesynth.train.engine.merging import merge_adapter

    with libraries_silenced():
        dtype = str(merge_adapter(config, found)).removeprefix("torch.")
    write_text_file(target / CARD, _card(target.name, base, shown_name(str(adapter)), dtype))
    return Merged(target, base, dtype)


def _card(title: str, base: str, adapter: str, dtype: str) -> str:
    named = published(base)[0]
    return f"""---
{hub_header(base, "transformers", "merged")}
---

# {code(title)}

{code(shown_name(named))} with the low-rank adapters of {code(adapter)} merged in, by refinesynth {__version__}; its weights are in {code(dtype)}. What it was trained on, and how,
stands on the adapter's card.

No licence is set here: choosing one is up to those who publish this model. The licence of the base model goes on to hold.
"""
