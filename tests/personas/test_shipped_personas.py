"""The shipped personas: enough, all different, one sentence each."""

import re
from itertools import combinations

from refinesynth.personas import shipped

ABBREVIATIONS = re.compile(r"\b(Mr|Mrs|Dr)\.")


def trigrams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


def test_there_are_about_three_hundred_and_none_twice() -> None:
    texts = [persona.text for persona in shipped()]
    assert 290 <= len(texts) <= 320
    assert len({text.casefold() for text in texts}) == len(texts)


def test_no_two_are_nearly_the_same() -> None:
    grams = {persona.text: trigrams(persona.text) for persona in shipped()}
    for one, other in combinations(grams, 2):
        shared = len(grams[one] & grams[other]) / len(grams[one] | grams[other])
        assert shared < 0.15, (one, other)


def test_each_is_one_sentence_of_some_length() -> None:
    for persona in shipped():
        text = ABBREVIATIONS.sub(r"\1", persona.text)
        assert text == text.strip()
        assert text[-1] == "."
        assert not re.search(r"[.!?]\s+[A-Z]", text), text
        assert 6 <= len(text.split()) <= 40, text
