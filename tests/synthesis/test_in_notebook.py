"""`progress=True` shows one line in a notebook, which follows the run."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from refinesynth.errors import InputError
from refinesynth.synthesis import synthesize


class Notebook:
    """What IPython's display does with a line that has an id: it is shown once, and replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, shell: object) -> None:
        self.shown = list[Any]()
        package, display = ModuleType("IPython"), ModuleType("IPython.display")
        package.__dict__["get_ipython"] = lambda: shell
        display.__dict__["display"] = self.display
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, data: Any, *, raw: bool, display_id: bool) -> "Notebook":
        assert (raw, display_id, self.shown) == (True, True, [])
        self.shown.append(data)
        return self

    def update(self, data: Any, *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


async def test_one_line_follows_the_run_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch, shell=object())
    await synthesize(n=2, play="narrated", output=tmp_path / "run", progress=True)
    assert all(data.keys() == {"text/plain"} for data in notebook.shown)
    assert notebook.shown[-1]["text/plain"].startswith("2/2 accepted")


async def test_a_callback_of_ones_own_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, moments = Notebook(monkeypatch, shell=object()), list[object]()
    await synthesize(n=1, play="narrated", output=tmp_path / "run", progress=True, on_progress=moments.append)
    assert (notebook.shown, bool(moments)) == ([], True)


async def test_elsewhere_it_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Notebook(monkeypatch, shell=None)
    with pytest.raises(InputError, match="this is none; elsewhere give on_progress"):
        await synthesize(n=1, output=tmp_path / "run", progress=True)
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(InputError, match="this is none"):
        await synthesize(n=1, output=tmp_path / "run", progress=True)
    assert not (tmp_path / "run").exists()
