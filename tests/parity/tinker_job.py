"""The cookbook of Tinker on one exported file, run by its own Python: tinker_job.py MODEL DATA RENDERER OUT.

Writes the `input_ids` and `labels` of each record, one JSON list in the file's order. RENDERER is one of the cookbook's.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, data: str, renderer: str, out: str) -> None:
    # Typed as Any: it is not installed where this file is checked.
    supervised: Any = import_module("tinker_cookbook.supervised.data")
    types: Any = import_module("tinker_cookbook.supervised.types")
    renderers: Any = import_module("tinker_cookbook.renderers")
    settings = types.ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer=model,
        renderer_name=renderer,
        max_length=None,
        batch_size=1,
        train_on_what=renderers.TrainOnWhat.CUSTOMIZED,
    )
    builder = supervised.FromConversationFileBuilder(file_path=data, common_config=settings, shuffle_seed=None)
    dataset, _ = builder()
    rows: list[dict[str, list[int]]] = []
    for at in range(len(dataset)):
        (datum,) = dataset.get_batch(at)
        targets, weights = (datum.loss_fn_inputs[name].data for name in ("target_tokens", "weights"))
        labels = [target if weight else -100 for target, weight in zip(targets, weights, strict=True)]
        # The first token is no target.
        rows.append({"input_ids": [datum.model_input.to_ints()[0], *targets], "labels": [-100, *labels]})
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
