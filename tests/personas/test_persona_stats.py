"""What is said about collections of personas is so."""

from collections import Counter
from statistics import mean, median

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from persona_hub import elite

from refinesynth.personas import shipped, stats
from refinesynth.personas.near_duplicates import words
from refinesynth.personas.persona_stats import Lengths


def test_of_the_shipped_personas() -> None:
    texts = [persona.text for persona in shipped()]
    found = stats()
    assert (found.personas, found.bad, found.exact_duplicates) == (len(texts), 0, 0)
    assert found.characters.least == min(map(len, texts))
    assert found.characters.most == max(map(len, texts))
    assert found.characters.mean == round(mean(map(len, texts)), 2)
    assert found.distinct_words == len({word for text in texts for word in words(text)})
    assert orjson.loads(orjson.dumps(found.as_json()))["personas"] == len(texts)


def test_duplicates_are_counted() -> None:
    base = " ".join(f"word{number}" for number in range(38))
    rows = [
        elite(f"A smith {base}", "Law"),
        elite(f"a SMITH, {base}!", "law"),
        elite(f"A smith {base} of Oaxaca", "Medicine"),
        elite(f"A smith {base} of Oaxaca.", None),
        elite("A smith from somewhere else"),
        {"persona": ""},
    ]
    found = stats(rows)
    assert (found.personas, found.bad, found.problems) == (5, 1, ("line 6: is blank",))
    assert (found.exact_duplicates, found.near_duplicates) == (2, 1)
    without = stats(rows, near=False)
    assert (without.exact_duplicates, without.near_duplicates) == (2, None)


@given(texts=st.lists(st.sampled_from(["A smith", "a smith!", "A baker", "A judge in Rome"]), min_size=1))
def test_exact_duplicates_are_all_but_the_first_of_each(texts: list[str]) -> None:
    expected = len(texts) - len({tuple(words(text)) for text in texts})
    assert stats(texts).exact_duplicates == expected
    assert stats(texts, near=False).exact_duplicates == expected


@given(lengths=st.lists(st.integers(0, 50), min_size=1))
def test_lengths_are_those_of_the_list(lengths: list[int]) -> None:
    found = Lengths.of(Counter(lengths))
    assert (found.least, found.most) == (min(lengths), max(lengths))
    assert found.mean == pytest.approx(mean(lengths), abs=0.0051)
    assert abs(found.median - median(lengths)) <= max(lengths) - min(lengths)
    assert sum(length <= found.median for length in lengths) >= len(lengths) / 2
    assert sum(length >= found.median for length in lengths) >= len(lengths) / 2
    assert sum(length >= found.longest_tenth for length in lengths) >= len(lengths) / 10
