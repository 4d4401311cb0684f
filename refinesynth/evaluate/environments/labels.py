"""AgentBoard's label files: one JSON object a line, with goal, subgoals, difficulty and additional_info."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from refinesynth.evaluate.environments.environment import BadInstance

AGENTBOARD = "AgentBoard's data, huggingface.co/datasets/hkust-nlp/agentboard"
_MOST_ROWS = 10_000


class Label:
    """One row with typed access to its fields and those of its additional_info; raises BadInstance."""

    def __init__(self, where: str, row: dict[str, Any]) -> None:
        self._where, self._row = where, row
        about: object = row.get("additional_info")
        self._about: dict[str, Any] = cast("dict[str, Any]", about) if isinstance(about, dict) else {}

    def has(self, name: str) -> bool:
        return name in self._row or name in self._about

    def text(self, name: str) -> str:
        value: object = self._row.get(name, self._about.get(name))
        if not isinstance(value, str):
            raise self._bad(name, value, "a text")
        return value

    def number(self, name: str) -> int:
        value: object = self._row.get(name, self._about.get(name))
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._bad(name, value, "a whole number")
        return value

    def patterns(self, name: str) -> list[str]:
        """A field with at least one regular expression."""
        for text in self.texts(name):
            try:
                re.compile(text)
            except re.error as error:
                raise BadInstance(f"{self._where} has {name} {text!r}, which is no pattern: {error}") from error
        return self.texts(name)

    def texts(self, name: str) -> list[str]:
        values: object = self._row.get(name)
        texts = cast("list[Any]", values) if isinstance(values, list) else []
        if not texts or not all(isinstance(one, str) for one in texts):
            raise self._bad(name, self._row.get(name), "a list of texts")
        return texts

    def _bad(self, name: str, value: object, expected: str) -> BadInstance:
        return BadInstance(f"{self._where} has {name} {value!r}; expected {expected}, as in {AGENTBOARD}")

    def names(self) -> Iterator[str]:
        return iter(self._row)


def labels(folder: Path) -> Iterator[Label]:
    """Rows of the test.jsonl in a folder, in order; raises BadInstance if it cannot be read."""
    path = folder / "test.jsonl"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInstance(f"{str(path)!r} cannot be read: {error}; expected the labels of {AGENTBOARD}") from error
    for number, line in enumerate(lines[:_MOST_ROWS], start=1):
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInstance(f"line {number} of {str(path)!r} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInstance(f"line {number} of {str(path)!r} is no JSON object; expected a label of {AGENTBOARD}")
        yield Label(f"line {number} of {str(path)!r}", cast("dict[str, Any]", row))
