"""The run that reports and audits are of."""

from functools import partial
from pathlib import Path

import anyio
import pytest

import refinesynth as rs


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reported") / "first"
    anyio.run(partial(rs.synthesize, n=20, backend="rehearsal", output=folder, seed=4))
    return folder
