"""The load in LLaMA-Factory's classic trainer, run by its own Python: llamafactory_job.py LOAD.json."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from load import Load
from second_epoch import Stopwatch, callback


def main(load: Load) -> None:
    # For data with sounds, of which there is none; its wheels want a torch with CUDA.
    sys.modules.setdefault("torchaudio", module_from_spec(ModuleSpec("torchaudio", None)))
    # Typed as Any: it is not installed where this file is checked.
    tuner: Any = import_module("llamafactory.train.tuner")
    data = Path(load.data)
    on_gpu = load.device == "cuda"
    watch = Stopwatch(load.device)
    tuner.run_exp(
        {
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "full",
            "model_name_or_path": load.model,
            "template": "chatml",
            "dataset": data.stem,
            "dataset_dir": str(data.parent),
            "mask_history": load.mask_history,
            "packing": load.packing,
            "neat_packing": load.packing,
            "cutoff_len": load.max_length,
            "output_dir": str(Path(load.out) / "model"),
            "overwrite_cache": True,
            "per_device_train_batch_size": load.rows,
            "gradient_accumulation_steps": max(1, load.conversations // load.rows),
            "num_train_epochs": 2,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "cosine",
            "bf16": on_gpu,
            "use_cpu": not on_gpu,
            "disable_gradient_checkpointing": not on_gpu,
            "save_strategy": "no",
            "logging_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "plot_loss": False,
        },
        callbacks=[callback(watch)],
    )
    load.answer(watch)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
