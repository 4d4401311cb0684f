"""Load the templates, let a folder of the user's override them, check them before anything is paid for, and fill
them.
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
from typing import TYPE_CHECKING, TypeVar, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from refinesynth.actions.matching import MAX_ACTION_CHARACTERS
from refinesynth.actions.patterns import MAX_PATTERN_CHARACTERS
from refinesynth.chat.react import as_first_worded
from refinesynth.errors import ConfigurationError
from refinesynth.prompts.data_blocks import block
from refinesynth.rules.registry import numbers, usual_numbers
from refinesynth.rules.rule import Rule
from refinesynth.rules.text_form import MAX_OBSERVATION
from refinesynth.trajectory import Draft, Script, read_turns
from refinesynth.trajectory.rulebook import MAX_CEL, MAX_PARTS, MAX_SOLUTION, MAX_TEXT

if TYPE_CHECKING:
    from jinja2 import Environment, Template

SHOWN = 3
"""Scripts that a prompt shows at a time, with rulebooks or without, as far as there are so many."""

_Item = TypeVar("_Item")


class Kind(StrEnum):
    """Which examples are drawn from. Draws of one kind say nothing about those of another."""

    SCRIPTS = "scripts"
    TRAJECTORIES = "trajectories"
    GROUNDED = "grounded"


class Examples(BaseModel):
    """Examples that a model is shown before it writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[Script, ...]
    """Shown to the ScriptWriter, `SHOWN` at a time."""
    trajectories: tuple[Draft, ...] = Field(min_length=1)
    """Shown to the Narrator with their scripts, one at a time."""
    grounded: tuple[Script, ...] = ()
    """Shown to the ScriptWriter in grounded play, `SHOWN` at a time: scripts with their rulebooks."""


def drawn(items: Sequence[_Item], kind: Kind, seed: int, *, most: int = SHOWN) -> tuple[_Item, ...]:
    """`most` of the items that follow one another, or as many as there are, drawn by a seed: the same everywhere and
    always.

    They are one of few sets, so that a provider has the beginning of a request in its cache.
    """
    if len(items) <= most:
        return tuple(items)
    chance = int.from_bytes(blake2b(f"{seed}/{kind}".encode(), digest_size=8).digest())
    begin = min(chance % math.ceil(len(items) / most) * most, len(items) - most)
    return tuple(items[begin : begin + most])


@cache
def shipped_examples() -> Examples:
    """The examples in the package's folder `prompts/examples`."""
    folder = files("refinesynth.prompts") / "examples"
    scripts = {name: Script.from_json(text) for name, text in _texts(folder / "scripts")}
    return Examples(
        scripts=tuple(scripts.values()),
        # A trajectory is named after its script.
        trajectories=tuple(_played(scripts[name], text) for name, text in _texts(folder / "trajectories")),
        grounded=tuple(Script.from_json(text) for _, text in _texts(folder / "grounded")),
    )


def _played(script: Script, text: bytes) -> Draft:
    return Draft(script=script, turns=read_turns(cast("dict[str, JsonValue]", orjson.loads(text))["turns"]))


def _texts(folder: Traversable) -> list[tuple[str, bytes]]:
    """Names and contents of the files in a folder, by their names."""
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".json")]
    return [(entry.name, entry.read_bytes()) for entry in sorted(found, key=lambda entry: entry.name)]


SUFFIX = ".md.j2"
SMALL = "@small"
"""Name in the place of a folder: the shipped short templates, for models below about 8 billion parameters."""

SECTIONS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "script_writer": {
        "instructions": frozenset({"examples"}),
        "request": frozenset({"persona", "previous", "violations"}),
    },
    "dungeon_master": {
        "instructions": frozenset(),
        "request": frozenset({"script", "history", "action", "form", "violations", "ending"}),
    },
    "player_mistake": {"request": frozenset({"mistake", "way"})},
    "player_retake": {"request": frozenset({"violations"})},
    "player_repair": {"request": frozenset({"action", "mistake", "reason"})},
    "narrator": {
        "instructions": frozenset({"minimum", "example"}),
        "request": frozenset({"script", "verified", "minimum", "violations"}),
    },
    "judge": {"instructions": frozenset(), "request": frozenset({"script", "trajectory"})},
    "turn_judge": {"instructions": frozenset(), "request": frozenset({"task", "history", "turn"})},
    "given_tools": {"request": frozenset({"tools", "grounded"})},
    "tool_server": {
        "writer": frozenset({"state"}),
        "instructions": frozenset(),
        "request": frozenset({"script", "history", "action", "result"}),
    },
    "rulebook_language": {"language": frozenset()},
    "rulebook_features": {"features": frozenset()},
    "rulebook_variety": {"twists": frozenset(), "surfaces": frozenset(), "devices": frozenset()},
    "rulebook_writer": {
        "instructions": frozenset({"examples"}),
        "request": frozenset({"persona", "wanted", "previous", "violations"}),
    },
    "grounded_master": {
        "instructions": frozenset(),
        "request": frozenset({"script", "history", "action", "ruling", "violations"}),
    },
}
"""Template name to its sections to the data that each is filled with."""

SHARED = frozenset({"script_writer", "dungeon_master", "player_mistake", "player_retake", "narrator", "judge"})
"""Templates that are in the digest of every play. Each of the others is read in some plays alone, which say so."""

_READERS: Mapping[str, Mapping[str, int]] = {
    "Pattern": {"characters": MAX_PATTERN_CHARACTERS},
    "Action": {"characters": MAX_ACTION_CHARACTERS},
    "Rulebook": {"parts": MAX_PARTS, "text": MAX_TEXT, "condition": MAX_CEL, "solution": MAX_SOLUTION},
    "Observation": {"characters": MAX_OBSERVATION},
}
"""Requirements that no rule states: what breaks them is refused before rules run."""

_GAP = re.compile(r"\n\n\n+")


class Prompts:
    """The templates of all roles: those shipped, each replaced by the file of the same name in `folder` (or in the set
    `SMALL`) if there is one.

    A template is a Jinja2 file `<name>.md.j2` with the blocks that `SECTIONS` lists. It runs sandboxed, an unknown
    variable is an error, and data is printed through the filter `block` alone (`{{ persona | block("persona") }}`), so
    that no text of a persona or a model can become part of the prompt itself; whole numbers may be printed as they are.
    Every block can use `limits`, so that a prompt names the sizes that `rules` refuse: `{{ limits.TurnLimit.most }}` is
    that rule's setting `most`.

    Raises:
        ConfigurationError: `folder` is no folder, holds a template of an unknown name, or one that cannot be read,
            compiled or filled. All templates are tried out here, so that filling them later cannot fail.
    """

    def __init__(
        self, folder: Path | str | None = None, *, examples: Examples | None = None, rules: Iterable[Rule] = ()
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.required = numbers(*rules)
        """Rule name to setting to its number, of `rules` alone."""
        limits = {**usual_numbers(), **self.required, **_READERS}
        # As attributes: of a mapping, `values` would be something else.
        self.limits = {name: SimpleNamespace(**figures) for name, figures in limits.items()}
        self.examples = shipped_examples() if examples is None else examples
        self._sources = {**_shipped_sources(), **_own_sources(self.folder)}
        # Imported here: only a run fills prompts, and Jinja takes its time.
        from refinesynth.prompts.template_language import environment_of

        environment = environment_of(frozenset(self._sources.items()))
        self._templates = {name: self._compile(name, environment) for name in SECTIONS}
        self._try_out()

    def __repr__(self) -> str:
        return f"Prompts({'' if self.folder is None else repr(str(self.folder))})"

    def __reduce__(self) -> tuple[type["Prompts"], tuple[Path | None], dict[str, object]]:
        # Compiled templates cannot go to another process; it reads the folder again.
        return Prompts, (self.folder,), {"examples": self.examples, "limits": self.limits, "required": self.required}

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal over the `SHARED` templates and their examples: what a run's settings record about its
        prompts.
        """
        return sha256(self._shared()).hexdigest()

    def digest_with(self, templates: Collection[str], *examples: Kind) -> str:
        """The same of a play that reads `templates` too, and shows these examples."""
        shown = "".join(block(getattr(self.examples, kind), kind) for kind in examples)
        return sha256(self._shared() + self._written(templates) + shown.encode()).hexdigest()

    def digest_beside(self, digest: str, template: str) -> str:
        """The `digest` of a play that reads one more template, as for a repairer or for given tools."""
        return sha256(digest.encode() + self._written({template})).hexdigest()

    def _shared(self) -> bytes:
        shown = self.examples.model_dump(mode="json", include={Kind.SCRIPTS, Kind.TRAJECTORIES})
        return self._written(SHARED) + block(shown, "examples").encode()

    def _written(self, templates: Collection[str]) -> bytes:
        sources = {name: as_first_worded(self._sources[name]) for name in sorted(templates)}
        return "".join(f"{name}\n{len(source)}\n{source}\n" for name, source in sources.items()).encode()

    def fill(self, name: str, section: str, **data: object) -> str:
        """One section of a template with `data` filled in, without blank space around it.

        Raises:
            ConfigurationError: The template asks for data that is not there, prints data past the filter `block`, or
                gives more than a prompt can be.
        """
        from jinja2 import TemplateError

        from refinesynth.prompts.template_language import joined

        template = self._templates[name]
        try:
            parts = template.blocks[section](template.new_context({"limits": self.limits, **data}))
            # Data has no line breaks of its own in it, so this closes only the gaps that conditions leave.
            return _GAP.sub("\n\n", joined(parts)).strip()
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._where(name)}, block {section!r}: {error}") from None
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise ConfigurationError(f"{self._where(name)}, block {section!r}: {error}") from error

    def _compile(self, name: str, environment: "Environment") -> "Template":
        from jinja2 import TemplateSyntaxError

        try:
            template = environment.get_template(name)
        except TemplateSyntaxError as error:
            raise ConfigurationError(f"{self._where(name)}, line {error.lineno}: {error.message}") from None
        if missing := SECTIONS[name].keys() - template.blocks.keys():
            wanted = " and ".join(f"{{% block {section} %}}" for section in sorted(missing))
            raise ConfigurationError(
                f"{self._where(name)}: {wanted} is missing; the shipped template shows where it goes"
            )
        return template

    def _try_out(self) -> None:
        for name, sections in SECTIONS.items():
            for section, wanted in sections.items():
                for sample in _SAMPLES:
                    self.fill(name, section, **{key: sample[key] for key in wanted})

    def _where(self, name: str) -> str:
        own = None if self.folder is None else self.folder / f"{name}{SUFFIX}"
        return f"prompt template {own}" if own is not None and own.is_file() else f"prompt template {name}{SUFFIX}"


def _shipped_sources(of: str = "templates") -> dict[str, str]:
    entries = (files("refinesynth.prompts") / of).iterdir()
    return {
        entry.name.removesuffix(SUFFIX): entry.read_text(encoding="utf-8")
        for entry in entries
        if entry.name.endswith(SUFFIX)
    }


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


_FULL: dict[str, object] = {
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
    _FULL,
    {
        **_FULL,
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
    {**_FULL, "previous": None, "mistake": "place", "way": "late"},
    {**_FULL, "way": "give_up"},
)
"""Data for trying templates out: between them they take every branch that a shipped template has."""
