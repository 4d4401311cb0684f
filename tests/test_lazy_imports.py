"""Names that a package imports on first use, also from an archive."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from refinesynth import lazy_imports

LAZY = """
from typing import TYPE_CHECKING
from lazy_imports import lazy_names
if TYPE_CHECKING:
    from lazy import room
    from lazy.room import name, room as other
__getattr__ = lazy_names(__name__)
"""


@pytest.mark.process
def test_names_are_found_in_an_archive(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("lazy/__init__.py", LAZY)
        archive.writestr("lazy/room.py", "name, room = 1, 2")
        archive.write(lazy_imports.__file__, "lazy_imports.py")
    code = (
        "import sys, lazy; print('lazy.room' in sys.modules, lazy.name, lazy.room.__name__, hasattr(lazy, 'strange'))"
    )
    env = {"PYTHONPATH": str(tmp_path / "all.zip")}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert shown.stdout.split() == ["False", "1", "lazy.room", "False"], shown.stderr


def test_a_package_without_its_source_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("compiled")
    package.__file__ = "nowhere/compiled/__init__.pyc"
    monkeypatch.setitem(sys.modules, "compiled", package)
    with pytest.raises(ImportError, match="compiled finds its names in its source"):
        lazy_imports.lazy_names("compiled")("name")
