"""The folder with benchmark data, which is other people's and not in the repository."""

import os
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
