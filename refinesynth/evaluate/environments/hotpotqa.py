"""HotpotQA: questions over two paragraphs (Yang et al., 2018) with ReAct's actions, offline over ten paragraphs."""

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from refinesynth.evaluate.environments.environment import (
    Action,
    BadInstance,
    Benchmark,
    Instance,
    Source,
    Start,
    Step,
)

FILE = "hotpot_dev_distractor_v1.json"
_FILES = f"hotpotqa/{FILE}, from hotpotqa.github.io"
_MAX_SENTENCES = 5
_MAX_TITLES = 5
_MAX_TEXT = 1_000

_FORM = re.compile(r"(?P<verb>search|lookup|finish)\s*\[(?P<text>.*)\]\.?", re.IGNORECASE | re.DOTALL)
_INTRODUCTION = (
    "You answer a question by looking for its facts in an encyclopedia, of which you see one paragraph at a time. The answer "
    "is a name, a number, a few words, or yes or no."
)
_ACTIONS = (
    Action("search[{entity}]", "show the beginning of the paragraph with that title, or titles that are similar"),
    Action("lookup[{keyword}]", "show the next sentence with that keyword in the paragraph that was found last"),
    Action("finish[{answer}]", "give the answer, which ends the task"),
)


class HotpotQA:
    """Environment of questions. Success is an exact match after normalising, progress is F1."""

    def __init__(self) -> None:
        self._ranking: Any = import_module("rank_bm25").BM25Okapi
        self._data: Mapping[str, Any] = {}
        self._paragraphs: dict[str, list[str]] = {}
        self._paragraph: list[str] = []
        self._last_lookup: tuple[str, int] = ("", 0)

    def reset(self, instance: Instance, /) -> Start:
        self._data = instance.data
        self._paragraphs = {title: list(sentences) for title, sentences in self._data["paragraphs"]}
        self._paragraph, self._last_lookup = [], ("", 0)
        return Start("", self._data["question"], _ACTIONS, _INTRODUCTION)

    def step(self, action: str, /) -> Step:
        match = _FORM.fullmatch(action.strip())
        if match is None:
            return self._reply("This is no action: write search[...], lookup[...] or finish[...].", refused=True)
        verb, text = match["verb"].lower(), match["text"].strip()[:_MAX_TEXT]
        if verb == "search":
            return self._search(text)
        if verb == "lookup":
            return self._look_up(text)
        exact, f1 = scores(text, self._data["answer"])
        return Step("The task is finished.", f1, done=True, success=exact == 1, measures={"em": exact, "f1": f1})

    def _search(self, entity: str) -> Step:
        title = next((key for key in self._paragraphs if key.casefold() == entity.casefold()), None)
        self._last_lookup = ("", 0)
        if title is None:
            return self._reply(f"Could not find {entity}. Similar: {self._similar(entity)}.", refused=True)
        self._paragraph = self._paragraphs[title]
        return self._reply("".join(self._paragraph[:_MAX_SENTENCES]).strip())

    def _similar(self, entity: str) -> list[str]:
        """Titles of the most similar paragraphs (BM25), the best first."""
        titles = list(self._paragraphs)
        if not titles:
            return []
        ranking = self._ranking([_normal(f"{title} {''.join(self._paragraphs[title])}").split() for title in titles])
        scores = cast("Sequence[float]", ranking.get_scores(_normal(entity).split()))
        return [title for _, title in sorted(zip(scores, titles, strict=True), key=lambda pair: -pair[0])][:_MAX_TITLES]

    def _look_up(self, keyword: str) -> Step:
        if not self._paragraph:
            return self._reply("There is no paragraph to look in: search one first.", refused=True)
        matches = [text.strip() for text in self._paragraph if keyword and keyword.casefold() in text.casefold()]
        index = self._last_lookup[1] if self._last_lookup[0] == keyword else 0
        self._last_lookup = (keyword, index + 1)
        if index >= len(matches):
            return self._reply("No more results.", refused=True)
        return self._reply(f"(Result {index + 1} / {len(matches)}) {matches[index]}")

    def _reply(self, observation: str, *, refused: bool = False) -> Step:
        return Step(observation, 0.0, done=False, success=False, refused=refused, measures={"em": 0.0, "f1": 0.0})

    def valid_actions(self) -> Sequence[str]:
        """A search for each paragraph, and each title as the answer."""
        titles = list(self._paragraphs)
        return [*(f"search[{title}]" for title in titles), *(f"finish[{title}]" for title in titles)]

    def close(self) -> None:
        """Nothing is held."""


def scores(answer: str, expected: str) -> tuple[float, float]:
    """Exact match and F1 over words after normalising, as in HotpotQA's own evaluation."""
    answered, correct = _normal(answer), _normal(expected)
    exact = float(answered == correct)
    closed = {"yes", "no", "noanswer"}
    if answered != correct and (answered in closed or correct in closed):
        return exact, 0.0
    words, expected_words = answered.split(), correct.split()
    same = sum((Counter(words) & Counter(expected_words)).values())
    return exact, 2 * same / (len(words) + len(expected_words)) if same else 0.0


def _normal(text: str) -> str:
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def _instances(source: Source) -> list[Instance]:
    path = source.folder("hotpotqa", holds=_FILES) / FILE
    try:
        rows: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInstance(f"{str(path)!r} cannot be read: {error}; expected {_FILES}") from error
    if not isinstance(rows, list):
        raise BadInstance(f"{str(path)!r} holds no list of questions; expected {_FILES}")
    return [_instance(path, number, row) for number, row in enumerate(cast("list[object]", rows), start=1)]


def _instance(path: Path, number: int, row: object) -> Instance:
    try:
        values = cast("dict[str, Any]", row)
        paragraphs = [(str(title), [str(text) for text in sentences]) for title, sentences in values["context"]]
        data = {"question": str(values["question"]), "answer": str(values["answer"]), "paragraphs": paragraphs}
        level = f"{values.get('type', '')} {values.get('level', '')}".strip()
        return Instance(str(values["_id"]), data, level)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInstance(
            f"question {number} of {str(path)!r} cannot be read ({error!r}); expected {_FILES}"
        ) from error


BENCHMARK = Benchmark(
    name="hotpotqa",
    environment=f"{__name__}:HotpotQA",
    instances=_instances,
    extra="refinesynth[hotpotqa]",
    steps=7,
    memory_mb=512,
)
