"""LLaMA-Factory v1's data code on one exported file: llamafactory_v1_job.py MODEL DATA TEMPLATE OUT.

Writes what its trainer would be given, one JSON list in the file's order. TEMPLATE is the name of one of its templates.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, data: str, template: str, out: str) -> None:
    os.environ["USE_V1"] = "1"
    # Typed as Any: it is not installed where this file is checked.
    engine: Any = import_module("llamafactory.v1.core.data_engine")
    rendering: Any = import_module("llamafactory.v1.core.utils.rendering")
    transformers: Any = import_module("transformers")
    samples = engine.DataEngine(data)
    renderer = rendering.Renderer(template, transformers.AutoTokenizer.from_pretrained(model))
    found = renderer.process_samples([samples[at] for at in range(len(samples))])
    rows = [{"input_ids": list(row["input_ids"]), "labels": list(row["labels"])} for row in found]
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
