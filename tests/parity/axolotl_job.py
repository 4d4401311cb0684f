"""Axolotl's own data code on one exported file, run by its own Python: axolotl_job.py MODEL DATA SETTINGS OUT.

Writes the `input_ids` and `labels` of each record, one JSON list in the file's order. SETTINGS are JSON, of the data
set, such as `message_field_training`.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, data: str, own: str, out: str) -> None:
    # Typed as Any: it is not installed where this file is checked.
    strategies: Any = import_module("axolotl.prompt_strategies.chat_template")
    settings: Any = import_module("axolotl.utils.dict")
    transformers: Any = import_module("transformers")
    strategy = strategies.load(
        transformers.AutoTokenizer.from_pretrained(model),
        settings.DictDefault({"train_on_inputs": False, "sequence_len": 100_000, "chat_template": "tokenizer_default"}),
        {"type": "chat_template", "chat_template": "tokenizer_default", **json.loads(own)},
    )
    records = [json.loads(line) for line in Path(data).read_bytes().splitlines()]
    found = [strategy.tokenize_prompt(record) for record in records]
    rows = [{"input_ids": list(row["input_ids"]), "labels": list(row["labels"])} for row in found]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
