"""Where benchmark data is, which is other people's and not in the repository; and what Inspect leaves behind."""

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "evaluation"


@pytest.fixture(scope="session")
def evaluation_data() -> Path:
    """The folder with one folder per benchmark; tests that need it are skipped where there is none."""
    folder = Path(os.environ.get("REFINESYNTH_EVALUATION_DATA", BESIDE))
    if not folder.is_dir():
        pytest.skip(f"no benchmark data in {folder}: set REFINESYNTH_EVALUATION_DATA")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Inspect leaves streams open. They are collected here, where their warnings are ignored, and not in a later test."""
    yield
    if "inspect_ai" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
