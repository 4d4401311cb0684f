"""Structural features of a script, independent of names.

The world is a tree of facts in which names stand for things. Things are distinguished as in the colour refinement of
graphs (Weisfeiler and Leman): by the actions that take them, then by their own facts, then by those of the things
mentioned with them. Worlds that differ only in names have equal facts at every level; worlds that differ in one fact
share nearly all facts at the first level and fewer at the next ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from pydantic import JsonValue

from refinesynth.diversity import shingles
from refinesynth.trajectory import ActionSpec, Effect, Requirement, Script

NAME = "<name>"

ACTIONS_COMPARED = 100

_MAX_VALUES = 500
"""Values of one parameter that are names."""

_MAX_NAME = 200

_MAX_TEXT = 8_000
"""Characters of one text that are looked at."""


def words(text: str) -> list[str]:
    """Casefolded words of a text, of a long one those at its beginning."""
    return shingles.words(text[:_MAX_TEXT].casefold())


class ScriptNames:
    """Values of the parameters of a script's actions; in a text, the longest match counts."""

    def __init__(self, script: Script) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        self.slots: dict[str, set[str]] = {}
        """Name to the places of actions that take it: `1/2` is the second of two."""
        for action in script.actions[:ACTIONS_COMPARED]:
            self._learn(action)
        for spelled in self._by_first.values():
            spelled.sort(key=lambda name: (-len(name), name))

    def _learn(self, action: ActionSpec) -> None:
        placeholders = action.placeholders
        for parameter, values in action.parameters.items():
            at = placeholders.index(parameter) if parameter in placeholders else -1
            for value in values[:_MAX_VALUES]:
                spelled = tuple(words(value[:_MAX_NAME]))
                if not spelled:
                    continue
                name = " ".join(spelled)
                if name not in self.slots:
                    self.slots[name] = set()
                    self._by_first.setdefault(spelled[0], []).append(spelled)
                self.slots[name].add(f"{at}/{len(placeholders)}")

    def known(self, text: str) -> str | None:
        """The name that a text is, ignoring case and punctuation."""
        name = " ".join(words(text[:_MAX_NAME]))
        return name if name in self.slots else None

    def masked(self, text: str) -> list[str]:
        """The words of a text with `NAME` for each name."""
        return [NAME if isinstance(part, tuple) else part for part in self._parts(words(text))]

    def mentioned(self, text: str) -> list[str]:
        """The names in a text, in order."""
        return [" ".join(part) for part in self._parts(words(text)) if isinstance(part, tuple)]

    def _parts(self, text: Sequence[str]) -> Iterator[str | tuple[str, ...]]:
        at = 0
        while at < len(text):
            for name in self._by_first.get(text[at], ()):
                if tuple(text[at : at + len(name)]) == name:
                    yield name
                    at += len(name)
                    break
            else:
                yield text[at]
                at += 1


LEVELS = 3
"""Rounds of refinement: by actions alone, by own facts, by neighbours' facts."""

_MAX_FACTS = 2_000
"""Facts of an environment that are looked at, in its own order."""

_MAX_DEPTH = 32

_MAX_LITERAL = 32
"""Longest text of a fact that is compared, in characters."""

_MAX_LAW = 2_000
"""Characters of a condition or path that are compared."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Multisets of features of a script."""

    world: Counter[str]
    """Facts of the environment, at each level."""
    actions: Counter[str]
    """Forms, laws and words of the actions."""
    goal: Counter[str]
    """Words of goal and completion conditions, the things they mention, and their laws."""

    @classmethod
    def of(cls, script: Script) -> "Structure":
        """Features of a script. Never raises; time is bounded by the limits above."""
        names = ScriptNames(script)
        world, colours = _world(script.environment, names)
        return cls(world=world, actions=_actions(script, names), goal=_goal(script, names, colours))


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    name: str | None


_ITEM = _Step("*", None)


def _world(environment: Mapping[str, JsonValue], names: ScriptNames) -> tuple[Counter[str], dict[str, str]]:
    """Facts at each level, and the colours of things after the first level."""
    facts = list(_facts(environment, names))
    colours = {name: digest("slots", *sorted(slots)) for name, slots in names.slots.items()}
    features: Counter[str] = Counter()
    own = colours
    for level in range(LEVELS):
        about: dict[str, list[str]] = {}
        for fact in facts:
            known = digest(str(level), *[step.text if step.name is None else colours[step.name] for step in fact])
            features[known] += 1
            for at, step in enumerate(fact):
                if step.name is not None:
                    about.setdefault(step.name, []).append(f"{at}{known}")
        if level + 1 < LEVELS:
            colours = {name: digest(colour, *sorted(about.get(name, ()))) for name, colour in colours.items()}
        if level == 0:
            own = colours
    return features, own


def _facts(environment: Mapping[str, JsonValue], names: ScriptNames) -> Iterator[tuple[_Step, ...]]:
    """Paths from the root to every leaf, iteratively for any depth."""

    def step(text: str) -> _Step:
        return _Step(text[:_MAX_LITERAL], names.known(text))

    stack: list[tuple[tuple[_Step, ...], JsonValue]] = [((), dict(environment))]
    left = _MAX_FACTS
    while stack and left:
        way, value = stack.pop()
        below: list[tuple[_Step, JsonValue]] = []
        if isinstance(value, dict):
            below = [(step(key), item) for key, item in list(value.items())[:_MAX_FACTS]]
        elif isinstance(value, list):
            below = [(_ITEM, item) for item in value[:_MAX_FACTS]]
        if below and len(way) < _MAX_DEPTH:
            stack.extend(((*way, key), item) for key, item in reversed(below))
            continue
        left -= 1
        name = names.known(value) if isinstance(value, str) else None
        yield (*way, _Step(_literal(value, names) if name is None else name, name))


def _literal(value: JsonValue, names: ScriptNames) -> str:
    if isinstance(value, str):
        plain = len(value) <= _MAX_LITERAL and not names.mentioned(value)
        return f"={value.casefold()}" if plain else "=text"
    if isinstance(value, dict | list):
        return f"={type(value).__name__}"
    return f"={value!r}"[:_MAX_LITERAL]


def _actions(script: Script, names: ScriptNames) -> Counter[str]:
    features: Counter[str] = Counter()
    for action in script.actions[:ACTIONS_COMPARED]:
        placeholders = action.placeholders
        skeleton = [word for word in words(action.fill(dict.fromkeys(placeholders, "{}"))) if word]
        features[digest("form", str(len(placeholders)), str(len(action.requires)), str(len(action.effects)))] += 1
        features[digest("template", *skeleton, str(len(placeholders)))] += 1
        for word in skeleton:
            features[digest("word", word)] += 1
        for law in _laws(action.requires, action.effects):
            features[digest("law", *_anonymous(law, placeholders, names))] += 1
    for law in _laws((), script.rulebook.each_step if script.rulebook is not None else ()):
        features[digest("law", *_anonymous(law, (), names))] += 1
    return features


def _laws(requires: Iterable[Requirement], effects: Iterable[Effect]) -> Iterator[str]:
    for requirement in requires:
        yield f"{requirement.kind} {requirement.condition[:_MAX_LAW]}"
        yield from _laws((), requirement.effects)
    for effect in effects:
        parts = (effect.path, effect.from_path or "", effect.when or "", *filter(None, (effect.each,)))
        yield " ".join((effect.op, repr(effect.value)[:_MAX_LAW], *(part[:_MAX_LAW] for part in parts)))


def _anonymous(law: str, placeholders: tuple[str, ...], names: ScriptNames) -> list[str]:
    numbers = {placeholder.casefold(): f"${at}" for at, placeholder in enumerate(placeholders)}
    return [numbers.get(word, word) for word in names.masked(law)]


def _goal(script: Script, names: ScriptNames, colours: Mapping[str, str]) -> Counter[str]:
    features: Counter[str] = Counter()
    laws = script.rulebook.goal if script.rulebook is not None else ()
    for text in (script.goal, *script.completion_conditions[:ACTIONS_COMPARED]):
        for word in names.masked(text):
            if word != NAME:
                features[digest("goal", word)] = 1
        for name in names.mentioned(text):
            features[digest("about", colours.get(name, name))] = 1
    for law in laws:
        about = (colours.get(name, name) for name in names.mentioned(law))
        features[digest("goal law", *names.masked(law[:_MAX_LAW]), *about)] += 1
    return features


def digest(*parts: str) -> str:
    """Eight hexadecimal digits of a feature. Not collision-resistant."""
    joined = "\0".join(parts)
    return f"{crc32(joined.encode('utf-8', 'surrogatepass')):08x}"
