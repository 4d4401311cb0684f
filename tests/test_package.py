"""What `import refinesynth` gives and what it costs."""

import subprocess
import sys
from importlib import import_module

import pytest

import refinesynth


def test_every_public_name_is_there() -> None:
    for name in refinesynth.__all__:
        assert getattr(refinesynth, name) is not None, name
    assert set(refinesynth.__all__) == {name for name in dir(refinesynth) if name == "__version__" or name[0] != "_"}


def test_a_name_that_is_a_room_too_can_be_called_whatever_was_imported_before() -> None:
    assert callable(refinesynth.evaluate)
    import_module("refinesynth.evaluate.benchmarks")
    with pytest.raises(refinesynth.InputError, match="benchmark is 'nothing'; expected one of 'alfworld'"):
        refinesynth.evaluate("oracle", tasks="nothing")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'synthesise'"):
        _ = refinesynth.synthesise  # pyright: ignore


@pytest.mark.process
def test_importing_brings_nothing_heavy() -> None:
    code = "import refinesynth, sys; print([m for m in ('litellm', 'pydantic_ai', 'pydantic', 'typer') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.process
def test_rules_and_values_need_no_backend() -> None:
    code = "import refinesynth as rs, sys; rs.rules.strict(); rs.Draft; print('litellm' in sys.modules, 'pydantic_ai' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False False"
