"""Loader of the prompt templates: the shipped ones, overridden by a user's folder, validated before the first paid
request.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from hashlib import blake2b, sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from refinesynth.actions.matching import MAX_ACTION_CHARACTERS
from refinesynth.actions.patterns import MAX_PATTERN_CHARACTERS
from refinesynth.chat.react import with_former_instructions
from refinesynth.errors import ConfigurationError
from refinesynth.prompts.data_blocks import block
from refinesynth.rules.registry import BUILT_IN, numbers
from refinesynth.rules.rule import Rule
from refinesynth.trajectory import Draft, Script, read_turns
from refinesynth.trajectory.rulebook import MAX_CEL, MAX_PARTS, MAX_SOLUTION, MAX_TEXT
from refinesynth.trajectory.turns import MAX_OBSERVATION

if TYPE_CHECKING:
    from jinja2 import Environment, Template

SHOWN = 3
"""Maximum number of example scripts in a prompt, with rulebooks or without."""

_Item = TypeVar("_Item")


class Kind(StrEnum):
    """Kinds of examples. Draws of different kinds are independent."""

    SCRIPTS = "scripts"
    TRAJECTORIES = "trajectories"
    GROUNDED = "grounded"


class Examples(BaseModel):
    """Examples in a model's prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[Script, ...]
    """For the ScriptWriter, `SHOWN` at a time."""
    trajectories: tuple[Draft, ...] = Field(min_length=1)
    """For the Narrator, with their scripts, one at a time."""
    grounded: tuple[Script, ...] = ()
    """For the ScriptWriter in grounded play, `SHOWN` at a time: scripts with rulebooks."""


def drawn(items: Sequence[_Item], kind: Kind, seed: int, *, most: int = SHOWN) -> tuple[_Item, ...]:
    """Return up to `most` consecutive items, drawn by a seed, the same on every machine.

    There are few different results, so a provider can cache the beginning of a request.
    """
    if len(items) <= most:
        return tuple(items)
    chance = int.from_bytes(blake2b(f"{seed}/{kind}".encode(), digest_size=8).digest())
    begin = min(chance % math.ceil(len(items) / most) * most, len(items) - most)
    return tuple(items[begin : begin + most])


@cache
def shipped_examples() -> Examples:
    """Return the examples in the package's folder `prompts/examples`, read once."""
    folder = files("refinesynth.prompts") / "examples"
    scripts = {name: Script.from_json(text) for name, text in _texts(folder / "scripts")}
    trajectories = {name: orjson.loads(text) for name, text in _texts(folder / "trajectories")}
    return Examples(
        scripts=tuple(scripts.values()),
        # A trajectory is named after its script.
        trajectories=tuple(
            Draft(script=scripts[name], turns=read_turns(played["turns"])) for name, played in trajectories.items()
        ),
        grounded=tuple(Script.from_json(text) for _, text in _texts(folder / "grounded")),
    )


def _texts(folder: Traversable) -> list[tuple[str, bytes]]:
    """Return name and content of each JSON file in a folder, sorted by name."""
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return [(name, found[name].read_bytes()) for name in sorted(found)]


SUFFIX = ".md.j2"
SMALL = "@small"
"""Name of the shipped short templates, for models below about 8 billion parameters; in the place of a folder."""

SECTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "script_writer": {"instructions": ("examples",), "request": ("persona", "previous", "violations")},
    "dungeon_master": {"instructions": (), "request": ("script", "history", "action", "form", "violations", "ending")},
    "player_mistake": {"request": ("mistake", "way")},
    "player_retake": {"request": ("violations",)},
    "player_repair": {"request": ("action", "mistake", "reason")},
    "narrator": {"instructions": ("minimum", "example"), "request": ("script", "verified", "minimum", "violations")},
    "judge": {"instructions": (), "request": ("script", "trajectory")},
    "turn_judge": {"instructions": (), "request": ("task", "history", "turn")},
    "given_tools": {"request": ("tools", "grounded")},
    "tool_server": {"writer": ("state",), "instructions": (), "request": ("script", "history", "action", "result")},
    "rulebook_language": {"language": ()},
    "rulebook_features": {"features": ()},
    "rulebook_variety": {"twists": (), "surfaces": (), "devices": ()},
    "rulebook_writer": {"instructions": ("examples",), "request": ("persona", "wanted", "previous", "violations")},
    "grounded_master": {"instructions": (), "request": ("script", "history", "action", "ruling", "violations")},
}
"""Template name to its sections, and each section to the data that fills it."""

SHARED = frozenset({"script_writer", "dungeon_master", "player_mistake", "player_retake", "narrator", "judge"})
"""Templates in the digest of every play. Plays name their other templates themselves."""

_READERS: Mapping[str, Mapping[str, int]] = {
    "Pattern": {"characters": MAX_PATTERN_CHARACTERS},
    "Action": {"characters": MAX_ACTION_CHARACTERS},
    "Rulebook": {"parts": MAX_PARTS, "text": MAX_TEXT, "condition": MAX_CEL, "solution": MAX_SOLUTION},
    "Observation": {"characters": MAX_OBSERVATION},
}
"""Requirements that no rule checks, because the reader refuses violations earlier."""

_GAP = re.compile(r"\n\n\n+")


class Prompts:
    """Templates of all roles: the shipped ones, each replaced by the file of the same name in `folder` (or in the set
    `SMALL`).

    A template is a Jinja2 file `<name>.md.j2` with the blocks in `SECTIONS`. It runs sandboxed; an unknown variable is
    an error. Data is printed only through the filter `block` (`{{ persona | block("persona") }}`), so text of a persona
    or a model cannot become part of the prompt itself; whole numbers may be printed directly. Every block can use
    `limits`, so a prompt names the sizes that are refused: `{{ limits.TurnLimit.most }}` is the setting `most` of that
    rule in `rules`, or its default if `rules` lack it.

    Raises:
        ConfigurationError: `folder` is no folder, holds no template, a template of an unknown name, or one that cannot
            be read, compiled or filled. All templates are tried with sample data at construction, so a wrong one is
            found before a run.
    """

    def __init__(
        self, folder: Path | str | None = None, *, examples: Examples | None = None, rules: Iterable[Rule] = ()
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.required = numbers(*rules)
        """Rule name to setting to its number, for `rules`."""
        usual = numbers(*(rule() for rule in BUILT_IN.values() if isinstance(rule, type)))
        limits = {**usual, **self.required, **_READERS}
        # As attributes: `values` of a mapping would be its method.
        self.limits = {name: SimpleNamespace(**figures) for name, figures in limits.items()}
        self.examples = shipped_examples() if examples is None else examples
        self._sources = {**_shipped_sources(), **_own_sources(self.folder)}
        # Imported here because only a run fills prompts, and Jinja's import is slow.
        from refinesynth.prompts.template_language import environment_of

        environment = environment_of(frozenset(self._sources.items()))
        self._templates = {name: self._compile(name, environment) for name in SECTIONS}
        for name, sections in SECTIONS.items():
            for section, wanted in sections.items():
                for sample in _SAMPLES:
                    self.fill(name, section, **{key: sample[key] for key in wanted})

    def __repr__(self) -> str:
        return f"Prompts({'' if self.folder is None else repr(str(self.folder))})"

    def __reduce__(self) -> tuple[type["Prompts"], tuple[Path | None], dict[str, object]]:
        # Compiled templates cannot be pickled; the other process reads the folder again.
        return Prompts, (self.folder,), {"examples": self.examples, "limits": self.limits, "required": self.required}

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal over the `SHARED` templates and their examples; recorded in a run's settings."""
        return sha256(self._shared_bytes()).hexdigest()

    def digest_with(self, templates: Collection[str], *examples: Kind) -> str:
        """Return the digest for a play with further `templates` and examples of these kinds."""
        shown = "".join(block(getattr(self.examples, kind), kind) for kind in examples)
        return sha256(self._shared_bytes() + self._template_bytes(templates) + shown.encode()).hexdigest()

    def digest_plus(self, digest: str, template: str) -> str:
        """Return the `digest` for a play with one more template, for a repairer or given tools."""
        return sha256(digest.encode() + self._template_bytes({template})).hexdigest()

    def _shared_bytes(self) -> bytes:
        shown = self.examples.model_dump(mode="json", include={Kind.SCRIPTS, Kind.TRAJECTORIES})
        return self._template_bytes(SHARED) + block(shown, "examples").encode()

    def _template_bytes(self, templates: Collection[str]) -> bytes:
        sources = {name: with_former_instructions(self._sources[name]) for name in sorted(templates)}
        return "".join(f"{name}\n{len(source)}\n{source}\n" for name, source in sources.items()).encode()

    def fill(self, name: str, section: str, **data: object) -> str:
        """Return a section of a template filled with `data`, trimmed.

        Raises:
            ConfigurationError: The template uses unknown data, or prints data without the filter `block`.
        """
        from jinja2 import TemplateError

        template = self._templates[name]
        try:
            parts = template.blocks[section](template.new_context({"limits": self.limits, **data}))
            # Data contains no line breaks, so this removes only gaps left by conditions.
            return _GAP.sub("\n\n", "".join(parts)).strip()
        except (
            ConfigurationError,
            TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise ConfigurationError(f"{self._description(name)}, block {section!r}: {error}") from error

    def _compile(self, name: str, environment: "Environment") -> "Template":
        from jinja2 import TemplateSyntaxError

        try:
            template = environment.get_template(name)
        except TemplateSyntaxError as error:
            raise ConfigurationError(f"{self._description(name)}, line {error.lineno}: {error.message}") from None
        if missing := SECTIONS[name].keys() - template.blocks.keys():
            wanted = " and ".join(f"{{% block {section} %}}" for section in sorted(missing))
            raise ConfigurationError(
                f"{self._description(name)}: {wanted} is missing; the shipped template shows where it goes"
            )
        return template

    def _description(self, name: str) -> str:
        own = None if self.folder is None else self.folder / f"{name}{SUFFIX}"
        return f"prompt template {own}" if own is not None and own.is_file() else f"prompt template {name}{SUFFIX}"


def _shipped_sources(of: str = "templates") -> dict[str, str]:
    entries = (entry for entry in (files("refinesynth.prompts") / of).iterdir() if entry.name.endswith(SUFFIX))
    return {entry.name.removesuffix(SUFFIX): entry.read_text(encoding="utf-8") for entry in entries}


def _own_sources(folder: Path | None) -> dict[str, str]:
    if folder is None or str(folder) == SMALL:
        return {} if folder is None else _shipped_sources("small")
    if not folder.is_dir():
        raise ConfigurationError(f"the prompt folder {str(folder)!r} is not a folder")
    known = ", ".join(f"{name}{SUFFIX}" for name in SECTIONS)
    sources: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.stem.casefold() == "readme":
            continue
        name = path.name.removesuffix(SUFFIX)
        if name == path.name or name not in SECTIONS:
            raise ConfigurationError(f"{path}: no role reads a template of this name; those read are {known}")
        try:
            sources[name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    if not sources:
        raise ConfigurationError(f"the prompt folder {str(folder)!r} holds none of the templates {known}")
    return sources


_SAMPLE_DATA: dict[str, object] = {
    "examples": [{"goal": "sample"}],
    "example": {"script": {"goal": "sample"}, "answer": {"turns": []}},
    "persona": "sample",
    "previous": {"goal": "sample"},
    "violations": ["sample"],
    "script": {"goal": "sample"},
    "history": [{"action": "sample", "thought": "sample", "mistake": None, "observation": "sample"}],
    "action": "sample",
    "form": {"available": True, "problem": None},
    "ending": {"limit": 2, "left": 1, "conditions": ["sample"]},
    "mistake": "logic",
    "way": "fresh",
    "reason": "sample",
    "verified": [],
    "minimum": 2,
    "trajectory": [],
    "task": {"goal": "sample"},
    "turn": {"thought": "sample", "action": "sample"},
    "wanted": {
        "step": "all",
        "features": ["hidden"],
        "actions": [6, 12],
        "twist": "sample",
        "surface": "sample",
        "device": "sample",
    },
    "ruling": {"accepted": True, "mistake": None, "transient": False, "text": "sample", "done": False},
    "tools": [{"name": "sample"}],
    "state": "sample",
    "result": "sample",
    "grounded": True,
}
_SAMPLES: tuple[dict[str, object], ...] = (
    _SAMPLE_DATA,
    {
        **_SAMPLE_DATA,
        "examples": [],
        "previous": None,
        "violations": [],
        "history": [],
        "mistake": "parameter",
        "way": "again",
        "minimum": 0,
        "ending": None,
        "grounded": False,
        "state": "",
    },
    {**_SAMPLE_DATA, "previous": None, "mistake": "place", "way": "late"},
    {**_SAMPLE_DATA, "way": "give_up"},
)
"""Sample data for validation; together it takes every branch of the shipped templates."""
