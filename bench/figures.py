"""What a program measured, as a table: each figure with its ratio to a reference and, where there is one, its goal."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Self

import orjson

_HEAD = ("", "measured", "ratio", "goal", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that was measured."""

    what: str
    value: float | None
    """None if it was not measured; `note` says why."""
    unit: str = ""
    reference: float | None = None
    """The same of what it is compared with, measured in the same process or the same minute; None if it has none."""
    goal: float | None = None
    aim: Literal["at most", "at least"] = "at most"
    of_ratio: bool = False
    """Whether the goal is one for the ratio and not for the value."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Value over reference."""
        return self.value / self.reference if self.reference and self.value is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        found = self.ratio if self.of_ratio else self.value
        if self.goal is None or found is None:
            return None
        return found <= self.goal if self.aim == "at most" else found >= self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The figures of one program."""

    title: str
    how: str
    """What was measured and against what, in a sentence or two."""
    figures: tuple[Figure, ...]

    def to_json(self) -> bytes:
        """This section, for another process."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """What `to_json` wrote."""
        found = orjson.loads(text)
        figures = tuple(Figure(**figure) for figure in found["figures"])
        return cls(title=found["title"], how=found["how"], figures=figures)


def table(sections: Iterable[Section]) -> str:
    """All sections as one Markdown table, aligned to be read in a terminal too."""
    rows: list[Sequence[str]] = [_HEAD]
    for section in sections:
        rows.append((f"**{section.title}**", "", "", "", ""))
        rows.extend(_row(figure) for figure in section.figures)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_line(row, widths) for row in rows]
    rule = (
        "| " + " | ".join("-" * (width - 1) + ("-" if at in (0, 4) else ":") for at, width in enumerate(widths)) + " |"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def _row(figure: Figure) -> Sequence[str]:
    goal = ""
    if figure.goal is not None:
        unit = "" if figure.of_ratio or not figure.unit else f" {figure.unit}"
        goal = f"{figure.aim} {_number(figure.goal)}{'x' if figure.of_ratio else unit}"
    verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
    return (
        figure.what,
        "" if figure.value is None else f"{_number(figure.value)} {figure.unit}".strip(),
        "" if figure.ratio is None else f"{_number(figure.ratio)}x",
        goal,
        "; ".join(filter(None, (verdict, figure.note))),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    left = {0, len(row) - 1}
    cells = (
        cell.ljust(width) if at in left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    """Three digits that count, or all of a whole number's."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
