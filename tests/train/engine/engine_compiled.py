"""A compiled training, in a process of its own: python engine_compiled.py FOLDER.

The tracer reads the bytecode of what it compiles, and cannot read what a coverage tool has put in there.
"""

import sys
from pathlib import Path

import engine_toys as toys

# The backend that runs what was traced as it is: another would look for a compiler, and take a minute.
COMPILED = {"torch_compile": True, "torch_compile_backend": "eager"}


def main(folder: Path) -> None:
    # Few conversations make one pack, and it is traced once.
    asked = toys.config(folder, max_steps=2, trainer=COMPILED)
    loop = toys.loop(toys.model(), toys.store(2, seed=3), asked, chunk_elements=7 * toys.VOCABULARY)
    loop.train()
    assert type(loop.wrapped).__name__ == "OptimizedModule"
    loop.save_model(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
