"""Coverage-guided fuzzing of the executor: atheris looks for input that takes new ways through the code, Hypothesis
makes worlds of it.

python tests/fuzz/guided.py NAME [-max_total_time=60] [further options of libFuzzer]; NAME is one of those that it lists
without one
"""

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import getmembers, isfunction
from typing import Any

atheris: Any = import_module("atheris")  # it says nothing of its types

with atheris.instrument_imports(include=["refinesynth.world", "refinesynth.actions"]):
    import test_fuzz_world


def laws() -> dict[str, Callable[[bytes], bytes | None]]:
    """Each law of the executor by name, as a function of bytes that Hypothesis reads as its choices."""
    found: dict[str, Callable[[bytes], bytes | None]] = {}
    for name, law in getmembers(test_fuzz_world, isfunction):
        given: Any = getattr(law, "hypothesis", None)
        if given is not None:
            found[name.removeprefix("test_")] = given.fuzz_one_input
    return found


_LARGE = ("-len_control=0", "-max_len=16384")
"""Hypothesis makes nothing of a few bytes: a world takes some thousand choices."""


def main() -> None:
    known = laws()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(f"usage: {sys.argv[0]} NAME [options of libFuzzer]; NAME is one of {', '.join(known)}")
    law = known[sys.argv.pop(1)]

    def hold(data: bytes) -> None:
        law(data)

    atheris.Setup([sys.argv[0], *_LARGE, *sys.argv[1:]], hold)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
