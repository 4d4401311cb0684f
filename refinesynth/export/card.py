"""Dataset card of a publication: a README.md for the Hugging Face Hub.

Titles, model names, rules and personas are untrusted. They are escaped: they cannot break the YAML header or add
headings, links, images or HTML to the body.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from refinesynth._version import __version__
from refinesynth.cost import Cost
from refinesynth.errors import InputError
from refinesynth.export.export_files import ExportReport
from refinesynth.run.completed_episode import EpisodeStats
from refinesynth.run.stats import TrajectoryStats
from refinesynth.text.json_reader import scrub
from refinesynth.text.markup import code, plain_text, render_markdown
from refinesynth.trajectory import PlayerTurn, Trajectory, Usage
from refinesynth.trajectory.positions import is_lopsided

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def size_category(records: int) -> str:
    """Return the category of a number of records on the Hugging Face Hub."""
    return next((name for limit, name in _SIZES if records < limit), "n>10M")


def check_licence(licence: str) -> str:
    """Return a licence identifier of the Hugging Face Hub in lower case; raises InputError for other text."""
    identifier = licence.strip().casefold()
    if not _LICENCE.fullmatch(identifier):
        raise InputError(
            f"{licence!r} is no licence identifier; write one as the Hugging Face Hub does: apache-2.0, mit, cc-by-4.0, "
            "cc-by-nc-sa-4.0, other"
        )
    return identifier


def check_languages(codes: Iterable[str]) -> tuple[str, ...]:
    """Return language codes of the Hugging Face Hub; raises InputError for other text."""
    codes = tuple(codes)
    if malformed := next((code for code in codes if not _LANGUAGE.fullmatch(code)), None):
        raise InputError(f"{malformed!r} is no language code; write one as the Hugging Face Hub does: en, de, zh")
    return codes


@dataclass
class CardCounts:
    """Counts over trajectories, in constant memory."""

    figures: TrajectoryStats = field(default_factory=TrajectoryStats)
    player_turns: int = 0
    generators: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Number of trajectories by role and model."""
    plays: Counter[str] = field(default_factory=Counter[str])
    rules: Counter[str] = field(default_factory=Counter[str])
    versions: Counter[str] = field(default_factory=Counter[str])
    spent: Cost = field(default_factory=Cost)

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> "CardCounts":
        tally = cls()
        for trajectory in trajectories:
            tally.add(trajectory)
        return tally

    def add(self, trajectory: Trajectory) -> None:
        self.figures.add(EpisodeStats.of_records([trajectory]))
        self.player_turns += sum(isinstance(turn, PlayerTurn) for turn in trajectory.turns)
        origin = trajectory.provenance
        self.generators.update(origin.models.items())
        self.plays[origin.play] += 1
        self.rules[origin.rules] += 1
        self.versions[origin.package_version] += 1
        self.spent += Cost(usage=origin.usage, cost_usd=origin.cost_usd)

    def counting(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Yield the trajectories, each counted."""
        for trajectory in trajectories:
            self.add(trajectory)
            yield trajectory

    @property
    def usage(self) -> Usage:
        """Tokens and requests of the trajectories' episodes, refused attempts included."""
        return self.spent.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None if the cost of a trajectory is unknown."""
        return self.spent.cost_usd

    @property
    def uneven(self) -> bool:
        """True if mistakes cluster in some part of the plays."""
        return is_lopsided(self.figures.tenths)


@dataclass(frozen=True)
class CardFacts:
    repo: str
    """Name of the dataset on the Hub."""
    title: str
    licence: str
    """Identifier of the Hugging Face Hub, without a default."""
    tally: CardCounts
    funnel: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts in order, keyed by sentence parts such as `personas started`."""
    language: tuple[str, ...] = ()
    """Language codes such as `en`."""
    held_out: ExportReport | None = None
    """Report of the split with the held-out scripts."""
    tags: tuple[str, ...] = ()
    estimated: bool = False
    """True if token counts of the run are estimated."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "licence", check_licence(self.licence))
        object.__setattr__(self, "language", check_languages(self.language))


_TEMPLATE = Path(__file__).with_name("card.md.jinja")


def yaml_text(text: str) -> str:
    """Return a double-quoted YAML scalar."""
    escaped = (char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in scrub(text))
    return f'"{"".join(escaped)}"'


def render_card(facts: CardFacts, report: ExportReport) -> str:
    filters = {"yaml": yaml_text, "text": plain_text, "code": code, "size_category": size_category}
    return render_markdown(_TEMPLATE, filters, facts=facts, tally=facts.tally, report=report, version=__version__)
