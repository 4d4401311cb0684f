"""Problem files of STRIPS domains without types: objects, initial literals, goal literals."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Literal = tuple[str, ...]
"""A predicate or operator and its objects."""

_Tree: TypeAlias = "str | list[_Tree]"
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, names in lower case as PDDL reads them."""

    name: str
    """Of its file."""
    objects: tuple[str, ...]
    initial: frozenset[Literal]
    goal: tuple[Literal, ...]
    """All of them have to hold."""


def read_problem(path: Path) -> Problem:
    """Read a problem file.

    Raises:
        ValueError: It is no problem of this kind: brackets, types, negation, other parts.
    """
    text = re.sub(r";[^\n]*", "", path.read_text(encoding="utf-8")).lower()
    tree = _tree(iter(_TOKEN.findall(text)))
    try:
        parts = {part[0]: part[1:] for part in tree[0][1:] if isinstance(part[0], str)}
        objects = tuple(_atoms(parts[":objects"]))
        goal = parts[":goal"][0]
        literals = goal[1:] if goal[0] == "and" else [goal]
        initial = frozenset(tuple(_atoms(literal)) for literal in parts[":init"])
        wanted = tuple(tuple(_atoms(literal)) for literal in literals)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an untyped STRIPS problem: {error}") from None
    return Problem(path.name, objects, initial, wanted)


def _tree(tokens: Iterator[str], *, inside: bool = False) -> list[_Tree]:
    found: list[_Tree] = []
    for token in tokens:
        if token == "(":
            found.append(_tree(tokens, inside=True))
        elif token == ")":
            if not inside:
                raise ValueError("a bracket closes nothing")
            return found
        else:
            found.append(token)
    if inside:
        raise ValueError("a bracket is never closed")
    return found


def _atoms(tree: _Tree) -> Iterator[str]:
    """The names of a flat list; a type, a negation or anything nested is refused."""
    for part in tree:
        if not isinstance(part, str) or part in {"-", "not", "and", "or"}:
            raise ValueError(f"{part!r} where only names are expected")
        yield part
