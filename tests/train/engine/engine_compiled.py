"""A compiled training, in a process of its own: python engine_compiled.py FOLDER.

The tracer reads the bytecode of what it compiles, and cannot read what a coverage tool has put in there.
"""

import sys
from functools import partial
from pathlib import Path

import engine_toys as toys

from refinesynth.train.engine import parallel

# The backend that runs what was traced as it is: another would look for a compiler, and take a minute.
parallel.TorchDynamoPlugin = partial(parallel.TorchDynamoPlugin, backend="EAGER")  # pyright: ignore


def main(folder: Path) -> None:
    # Few conversations make one pack, and it is traced once.
    asked = toys.config(folder, max_steps=2, trainer={"torch_compile": True})
    loop = toys.loop(toys.model(), toys.store(2, seed=3), asked, chunk_elements=7 * toys.VOCABULARY)
    loop.train()
    assert type(loop.wrapped).__name__ == "OptimizedModule"
    loop.save_model(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
