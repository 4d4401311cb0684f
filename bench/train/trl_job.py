"""The load in TRL's SFTTrainer, run by its own Python: trl_job.py LOAD.json."""

import json
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from load import Load
from second_epoch import Stopwatch, callback

_OURS = Path(__file__).parents[2] / "refinesynth" / "train" / "engine" / "attention.py"


def _everywhere(_device: Any) -> bool:
    return True


def _at_its_best(model: Any) -> None:
    """What TRL does on a GPU, on any device.

    There it evaluates the head on trained positions alone, by kernels in Triton, and keeps packed conversations apart
    by flash attention. Elsewhere it evaluates the head on all positions, and the library masks the whole square. Its
    code for trained positions alone computes the same in torch, so it is told to take it; and its collator gives the
    boundaries that our attention reads.
    """
    utils: Any = import_module("trl.trainer.utils")
    utils._use_triton = _everywhere  # noqa: SLF001
    found = spec_from_file_location("segments", _OURS)
    if found is None or found.loader is None:
        raise FileNotFoundError(_OURS)
    attention: Any = module_from_spec(found)
    found.loader.exec_module(attention)
    attention.register()
    model.set_attn_implementation(attention.SEGMENTS)


def main(load: Load) -> None:
    # Typed as Any: TRL is not installed where this file is checked.
    trl: Any = import_module("trl")
    datasets: Any = import_module("datasets")
    transformers: Any = import_module("transformers")
    torch: Any = import_module("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(load.model)
    if load.template is not None:
        tokenizer.chat_template = Path(load.template).read_text(encoding="utf-8")
    records = [json.loads(line) for line in Path(load.data).read_bytes().splitlines()]
    on_gpu = load.device == "cuda"
    watch = Stopwatch(load.device)
    model = transformers.AutoModelForCausalLM.from_pretrained(load.model, dtype=torch.float32)
    if load.best:
        _at_its_best(model)
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(
            output_dir=str(Path(load.out) / "model"),
            assistant_only_loss=True,
            # Without packing it refuses to flatten rows of a bounded length; none here is longer.
            max_length=None if load.flat else load.max_length,
            packing=load.packing,
            padding_free=load.flat,
            train_sampling_strategy="group_by_length" if load.best and not load.packing else "random",
            per_device_train_batch_size=load.rows,
            gradient_accumulation_steps=max(1, load.conversations // load.rows),
            num_train_epochs=2,
            learning_rate=1e-4,
            lr_scheduler_type="cosine",
            bf16=on_gpu,
            use_cpu=not on_gpu,
            gradient_checkpointing=on_gpu,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=datasets.Dataset.from_list(records),
        processing_class=tokenizer,
        callbacks=[callback(watch)],
    )
    trainer.train()
    load.answer(watch)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
