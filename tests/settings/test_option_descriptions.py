"""An option is described once, at its field; what repeats the description is the same."""

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

import pytest

import refinesynth as rs
from refinesynth import settings
from refinesynth.backends import Backend
from refinesynth.evaluate import evaluate
from refinesynth.evaluate.settings import Evaluation
from refinesynth.settings import RunSettings

_ENTRY = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.DOTALL | re.MULTILINE)


def described(function: Callable[..., Any]) -> dict[str, str]:
    """Argument to its text in the docstring."""
    _, _, rest = inspect.getdoc(function).partition("\nArgs:\n")  # pyright: ignore[reportOptionalMemberAccess]
    section, _, _ = rest.partition("\nRaises:\n")
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(section)}


def test_every_setting_is_an_argument_with_the_text_of_its_field() -> None:
    documented = described(rs.synthesize)
    parameters = inspect.signature(rs.synthesize).parameters
    assert documented.keys() == parameters.keys()
    for name, field in RunSettings.model_fields.items():
        assert documented[name] == " ".join((field.description or "").split()), name


def test_every_setting_of_an_evaluation_is_an_argument_with_the_text_and_default_of_its_field() -> None:
    documented, parameters = described(evaluate), inspect.signature(evaluate).parameters
    assert documented.keys() == parameters.keys() == {*Evaluation.model_fields, "on_progress"} - {"argument"}
    for name in documented.keys() & Evaluation.model_fields.keys():
        field = Evaluation.model_fields[name]
        assert documented[name] == " ".join((field.description or "").split()), name
        assert field.is_required() or (parameters[name].default or None) == (field.default or None), name


@pytest.mark.parametrize("function", [rs.synthesize, rs.estimate, rs.merge])
def test_the_types_of_public_functions_can_be_looked_up(function: Callable[..., Any]) -> None:
    assert "return" in typing.get_type_hints(function)


def test_defaults_of_arguments_are_those_of_the_fields() -> None:
    for name, parameter in inspect.signature(rs.synthesize).parameters.items():
        field = RunSettings.model_fields.get(name)
        if field is not None and parameter.default is not None and field.default is not None:
            assert parameter.default == field.default, name


@pytest.mark.parametrize("name", [*settings.__all__, "Backend"])
def test_every_field_of_settings_is_described(name: str) -> None:
    kind: Any = Backend if name == "Backend" else getattr(settings, name)
    assert [each for each, field in kind.__pydantic_fields__.items() if not field.description] == []
