"""LLaMA-Factory's classic data code on one exported file: llamafactory_v0_job.py MODEL DATA HISTORY OUT.

HISTORY is `mask` to train on each record's last turn alone (`mask_history: true`), `train` for all of them. Writes what
its trainer would be given, one JSON list in the file's order.
"""

import json
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any


def main(model: str, data: str, history: str, out: str) -> None:
    # For data with sounds, of which there is none; its wheels want a torch with CUDA.
    sys.modules["torchaudio"] = module_from_spec(ModuleSpec("torchaudio", None))
    # Typed as Any: it is not installed where this file is checked.
    hparams: Any = import_module("llamafactory.hparams")
    loading: Any = import_module("llamafactory.data")
    models: Any = import_module("llamafactory.model")
    file = Path(data)
    # As docs/export.md shows it.
    tags = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
    entry = {"file_name": file.name, "formatting": "sharegpt", "columns": {"messages": "conversations"}, "tags": tags}
    file.with_name("dataset_info.json").write_text(json.dumps({file.stem: entry}), encoding="utf-8")
    model_args, data_args, training_args, _, _ = hparams.get_train_args(
        {
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "full",
            "model_name_or_path": model,
            "template": "chatml",
            "dataset": file.stem,
            "dataset_dir": str(file.parent),
            "mask_history": history == "mask",
            "cutoff_len": 100_000,
            "output_dir": str(Path(out).with_suffix("")),
            "overwrite_cache": True,
            "use_cpu": True,
            "report_to": "none",
        }
    )
    module = models.load_tokenizer(model_args)
    template = loading.get_template_and_fix_tokenizer(module["tokenizer"], data_args)
    found = loading.get_dataset(template, model_args, data_args, training_args, stage="sft", **module)
    rows = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in found["train_dataset"]]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
