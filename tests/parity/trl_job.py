"""TRL's own data code on one exported file, run by its own Python: trl_job.py MODEL DATA TEMPLATE OUT.

Writes the `input_ids` and `labels` that `SFTTrainer` would train on, one JSON list in the file's order. TEMPLATE is a
file with a chat template that has generation markers (`assistant_only_loss` is set then), or `-` for the tokenizer's
own.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, data: str, template: str, out: str) -> None:
    # Typed as Any: TRL is not installed where this file is checked.
    trl: Any = import_module("trl")
    datasets: Any = import_module("datasets")
    transformers: Any = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    marked = template != "-"
    if marked:
        tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
    trainer = trl.SFTTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(model),
        args=trl.SFTConfig(
            output_dir=str(Path(out).with_suffix("")),
            assistant_only_loss=marked,
            max_length=None,
            use_cpu=True,
            bf16=False,
            report_to="none",
        ),
        train_dataset=datasets.load_dataset("json", data_files=data, split="train"),
        processing_class=tokenizer,
    )
    found = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in trainer.train_dataset]
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
