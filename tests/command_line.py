"""`refinesynth` as tests call it, in process."""

from typing import Any

from typer.testing import CliRunner, Result

from refinesynth.cli import app


def cli(*arguments: object, **settings: Any) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], **settings)


def unwrapped(text: str) -> str:
    """The words of a text, wherever lines were broken."""
    return " ".join(text.split())
