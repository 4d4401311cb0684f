"""The tokens and labels of the package `renderers`: renderers_job.py MODEL DATA NAME OUT.

NAME is one of its renderers. DATA holds, for each conversation, `messages`, `tools` and `mask`, a flag for each message.
Without `mask` a record is read as prime-rl reads it: `tools` and arguments are JSON text, and the role decides.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, data: str, name: str, out: str) -> None:
    # Typed as Any: it is not installed where this file is checked.
    renderers: Any = import_module("renderers")
    base: Any = import_module("renderers.base")
    configs: Any = import_module("renderers.configs")
    transformers: Any = import_module("transformers")
    every: list[Any] = [getattr(configs, one) for one in dir(configs)]
    named = {one.model_fields["name"].default: one for one in every if "name" in getattr(one, "model_fields", {})}
    renderer = renderers.create_renderer(transformers.AutoTokenizer.from_pretrained(model), named[name]())
    rows: list[dict[str, list[int]]] = []
    for line in Path(data).read_bytes().splitlines():
        record = json.loads(line)
        by_role = "mask" not in record
        if by_role:
            record = of_prime_rl(record)
        found = base.build_training_sample(
            renderer,
            record["messages"],
            tools=record["tools"],
            message_loss_mask=record.get("mask"),
            ensure_final_stop=by_role,
        )
        ids = list(found.token_ids)
        labels = [token if learned else -100 for token, learned in zip(ids, found.loss_mask, strict=True)]
        rows.append({"input_ids": ids, "labels": labels})
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


def of_prime_rl(record: dict[str, Any]) -> dict[str, Any]:
    """With tools and arguments read, as prime_rl/trainer/sft does before it calls `build_training_sample`."""
    for message in record["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return {**record, "tools": json.loads(record.get("tools", "[]"))}


if __name__ == "__main__":
    main(*sys.argv[1:])
