"""The load in TRL's SFTTrainer, run by its own Python: trl_job.py LOAD.json."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from load import Load
from second_epoch import stopwatch


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
    watch = stopwatch(load.device)
    trainer = trl.SFTTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(load.model, dtype=torch.float32),
        args=trl.SFTConfig(
            output_dir=str(Path(load.out) / "model"),
            assistant_only_loss=True,
            max_length=load.max_length,
            packing=load.packing,
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
        callbacks=[watch],
    )
    trainer.train()
    load.answer(seconds=watch.seconds, steps=watch.steps)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
