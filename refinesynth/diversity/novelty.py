"""Near-duplicates among scripts, by sketches of their structure (256 bytes), independent of names.

The world is a tree of facts in which names stand for things. Colour refinement of graphs (Weisfeiler and Leman)
distinguishes things: by the actions that take them, then by their own facts, then by the facts of things mentioned with
them. Worlds that differ only in names have equal facts at every level. Worlds that differ in one fact share nearly all
facts at the first level and fewer at the next ones.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.lazy_imports import check_installed
from refinesynth.trajectory import Effect, Requirement, Script

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NAME = "<name>"

ACTIONS_COMPARED = 100

_MAX_VALUES = 500
"""Maximum number of names among one parameter's values."""

_MAX_NAME = 200

_MAX_TEXT = 8_000
"""Maximum length of the compared beginning of a text, in characters."""


# Scripts without spaces between words: each character counts as a word.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"  # Han
)
# `\w` excludes combining marks, among them the vowel signs of Indic scripts.
_MARKS = "".join(mark for mark in map(chr, range(0x300, 0xAC00)) if unicodedata.category(mark)[0] == "M")
WORD = re.compile(rf"[{_UNSPACED}]|\w(?:(?![{_UNSPACED}])[\w{_MARKS}])*")


def normalized(text: str) -> str:
    """Return a text in Unicode's form NFKC."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def words(text: str) -> list[str]:
    """Return the casefolded words of a text's beginning; single characters in scripts without spaces."""
    return WORD.findall(normalized(text[:_MAX_TEXT]).casefold())


class ScriptNames:
    """Names in a script: the values of its actions' parameters. In a text, the longest match counts."""

    def __init__(self, script: Script) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        self.slots: dict[str, set[str]] = {}
        """Places of actions that take a name, by name: `1/2` is the second of two placeholders."""
        for action in script.actions[:ACTIONS_COMPARED]:
            placeholders = action.placeholders
            for parameter, values in action.parameters.items():
                position = placeholders.index(parameter) if parameter in placeholders else -1
                for name_words in filter(None, (words(value[:_MAX_NAME]) for value in values[:_MAX_VALUES])):
                    self.slots.setdefault(" ".join(name_words), set()).add(f"{position}/{len(placeholders)}")
        for name in self.slots:
            name_words = tuple(name.split(" "))
            self._by_first.setdefault(name_words[0], []).append(name_words)
        for names in self._by_first.values():
            names.sort(key=lambda name: (-len(name), name))

    def find(self, text: str) -> str | None:
        """Return the name that equals a text, ignoring case and punctuation; None if there is none."""
        name = " ".join(words(text[:_MAX_NAME]))
        return name if name in self.slots else None

    def masked(self, text: str) -> list[str]:
        """Return the words of a text, with `NAME` for each name."""
        return [NAME if isinstance(part, tuple) else part for part in self._parts(words(text))]

    def mentioned(self, text: str) -> list[str]:
        """Return the names in a text, in order."""
        return [" ".join(part) for part in self._parts(words(text)) if isinstance(part, tuple)]

    def _parts(self, text_words: Sequence[str]) -> Iterator[str | tuple[str, ...]]:
        index = 0
        while index < len(text_words):
            for name in self._by_first.get(text_words[index], ()):
                if tuple(text_words[index : index + len(name)]) == name:
                    yield name
                    index += len(name)
                    break
            else:
                yield text_words[index]
                index += 1


LEVELS = 3
"""Rounds of refinement: by actions alone, by own facts, by neighbours' facts."""

_MAX_FACTS = 2_000
"""Maximum number of compared facts of an environment, in its order."""

_MAX_DEPTH = 32

_MAX_LITERAL = 32
"""Maximum length of a compared text in a fact, in characters."""

_MAX_LAW = 2_000
"""Maximum length of the compared beginning of a condition or path, in characters."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Multisets of features of a script."""

    world: Counter[str]
    """Facts of the environment, at each level."""
    actions: Counter[str]
    """Forms, words, requirements and effects of the actions."""
    goal: Counter[str]
    """Words and things of goal and completion conditions, and the rulebook's goal."""

    @classmethod
    def of(cls, script: Script) -> "Structure":
        """Return the features of a script. Never raises; the limits above bound the time."""
        names = ScriptNames(script)
        world, colours = _world(script.environment, names)
        return cls(world=world, actions=_actions(script, names), goal=_goal(script, names, colours))


_Step = tuple[str, str | None]
"""Text of a step in the path to a fact, and its name; None if it is no name."""

_ITEM: _Step = ("*", None)


def _world(environment: Mapping[str, JsonValue], names: ScriptNames) -> tuple[Counter[str], dict[str, str]]:
    """Return the facts at each level, and the colours of things after the first level."""
    facts = list(_facts(environment, names))
    colours = {name: digest("slots", *sorted(slots)) for name, slots in names.slots.items()}
    features: Counter[str] = Counter()
    own_colours = colours
    for level in range(LEVELS):
        facts_of: dict[str, list[str]] = {}
        for fact in facts:
            coloured = digest(str(level), *[text if name is None else colours[name] for text, name in fact])
            features[coloured] += 1
            for index, (_, name) in enumerate(fact):
                if name is not None:
                    facts_of.setdefault(name, []).append(f"{index}{coloured}")
        if level + 1 < LEVELS:
            colours = {name: digest(colour, *sorted(facts_of.get(name, ()))) for name, colour in colours.items()}
        if level == 0:
            own_colours = colours
    return features, own_colours


def _facts(environment: Mapping[str, JsonValue], names: ScriptNames) -> Iterator[tuple[_Step, ...]]:
    """Yield the paths from the root to the leaves, iteratively for any depth."""

    def step(text: str) -> _Step:
        return text[:_MAX_LITERAL], names.find(text)

    stack: list[tuple[tuple[_Step, ...], JsonValue]] = [((), dict(environment))]
    remaining = _MAX_FACTS
    while stack and remaining:
        path, value = stack.pop()
        children: list[tuple[_Step, JsonValue]] = []
        if isinstance(value, dict):
            children = [(step(key), item) for key, item in list(value.items())[:_MAX_FACTS]]
        elif isinstance(value, list):
            children = [(_ITEM, item) for item in value[:_MAX_FACTS]]
        if children and len(path) < _MAX_DEPTH:
            stack.extend(((*path, key), item) for key, item in reversed(children))
            continue
        remaining -= 1
        name = names.find(value) if isinstance(value, str) else None
        yield (*path, (_literal(value, names) if name is None else name, name))


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
    numbers = {placeholder.casefold(): f"${index}" for index, placeholder in enumerate(placeholders)}
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
        mentioned_colours = (colours.get(name, name) for name in names.mentioned(law))
        features[digest("goal law", *names.masked(law[:_MAX_LAW]), *mentioned_colours)] += 1
    return features


def digest(*parts: str) -> str:
    """Return a feature as eight hexadecimal digits, without collision resistance."""
    joined = "\0".join(parts)
    return f"{crc32(joined.encode('utf-8', 'surrogatepass')):08x}"


PARTS = {"world": 128, "actions": 80, "goal": 48}
"""Bytes in a sketch for each part of a structure, and thus the part's weight."""

SIZE = sum(PARTS.values())

_MAX_COUNT = 64
"""Maximum number of counted occurrences of a feature."""


def sketch(script: Script) -> "NDArray[np.uint8]":
    """Return the sketch of a script, `SIZE` bytes; deterministic.

    The sketch is a MinHash for each part. The probability that a byte of a part is equal in two sketches is the Jaccard
    similarity of the multisets of features; other bytes are equal by chance in 1 of 256 cases. The share of equal bytes
    estimates the mean of the parts' similarities, weighted by `PARTS`, with a standard error of at most 0.03.
    """
    import numpy as np

    structure = Structure.of(script)
    parts: list[Any] = []
    for part, size in PARTS.items():
        features: Counter[str] = getattr(structure, part)
        minhash = empty_minhash(size, size).copy()
        # One 32-bit hash for each occurrence of a feature.
        if hashes := [
            (int(feature, 16) + occurrence * 0x9E3779B1) & 0xFFFFFFFF
            for feature, count in features.items()
            for occurrence in range(min(count, _MAX_COUNT))
        ]:
            minhash.update_batch(hashes)
        parts.append(minhash.hashvalues)
    # The lowest eight bits suffice: the hash is a bijection of well-mixed bits.
    return np.concatenate(parts).astype(np.uint8)


@cache
def empty_minhash(permutations: int, seed: int = 1) -> Any:
    """Return an empty MinHash for 32-bit numbers; copy it before an update."""
    from datasketch import MinHash

    return MinHash(num_perm=permutations, seed=seed, hashfunc=int, scheme="affine32")


NEAR_DUPLICATE = "NearDuplicate"
"""Name of the rule that refuses near-duplicate scripts."""

NEAR = 0.85
"""Minimum similarity of near-duplicates; docs/diversity.md has the measurement."""


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """Most similar script among the admitted ones; of equally similar scripts, the first."""

    of: str
    similarity: float
    """Mean of the similarities of world, actions and goal, from 0 to 1, weighted 8 : 5 : 3."""
    world: float
    """Similarity of the environments' facts, independent of names."""
    actions: float
    """Similarity of the actions' wording, and in grounded scripts of their effects."""
    goal: float
    """Similarity of the goals, independent of names."""


class Novelty:
    """Index that admits scripts unless they resemble an admitted one. Results depend only on the scripts and their order.

    Memory per script: up to 512 bytes and its name, and 256 more bytes during a comparison. A comparison with 32,000
    scripts takes about 2 ms, or 8 ms on a busy core.
    """

    def __init__(self, threshold: float = NEAR) -> None:
        """Make an empty index that refuses scripts with at least this similarity, above 0 and at most 1.

        Raises InputError: `threshold` is out of range, or a package is missing (extra `diversity`).
        """
        check_installed("diversity", "datasketch", "numpy")
        if not 0 < threshold <= 1:
            raise InputError(f"a threshold of similarity is {threshold!r}; expected more than 0 and at most 1")
        self.threshold = threshold
        import numpy as np

        self._names: list[str] = []
        self._sketches = np.empty((64, SIZE), dtype=np.uint8)
        """Sketches of the scripts in order, with free rows at the end."""

    def __len__(self) -> int:
        return len(self._names)

    def admit(self, script: Script, name: str) -> NearDuplicate | None:
        """Return the near-duplicate of a script, or add the script as `name` and return None. Never raises."""
        script_sketch = sketch(script)
        nearest = self._nearest(script_sketch)
        if nearest is not None and nearest.similarity >= self.threshold:
            return nearest
        self._append(script_sketch, name)
        return None

    def learn(self, scripts: Iterable[tuple[str, Script]]) -> None:
        """Add scripts of an earlier process with their names, in the order of their admission."""
        for name, script in scripts:
            self._append(sketch(script), name)

    def _nearest(self, script_sketch: "NDArray[np.uint8]") -> NearDuplicate | None:
        import numpy as np

        if not self._names:
            return None
        equal = self._sketches[: len(self)] == script_sketch
        counts = equal.sum(axis=1, dtype=np.uint16)
        index = int(counts.argmax())
        ends = np.cumsum([0, *PARTS.values()]).tolist()
        parts = {
            name: round(float(equal[index, start:end].mean()), 3)
            for name, start, end in zip(PARTS, ends, ends[1:], strict=False)
        }
        return NearDuplicate(of=self._names[index], similarity=round(int(counts[index]) / SIZE, 3), **parts)

    def _append(self, script_sketch: "NDArray[np.uint8]", name: str) -> None:
        import numpy as np

        if len(self) == len(self._sketches):
            self._sketches = np.concatenate((self._sketches, np.empty_like(self._sketches)))
        self._sketches[len(self)] = script_sketch
        self._names.append(name)
