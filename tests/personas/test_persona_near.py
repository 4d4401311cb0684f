"""Near-duplicates by words: nothing is refused wrongly, hardly anything is missed, and memory is bounded."""

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.personas.near_duplicates import THRESHOLD, NearDuplicates, choose_bands, grams, words

VOCABULARY = ["a", "smith", "in", "oaxaca", "who", "paints", "dragons", "for", "tourists", "baker"]
PERSONAS = st.lists(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12).map(" ".join), max_size=12)


def jaccard(one: str, other: str) -> float:
    first, second = grams(words(one)), grams(words(other))
    return len(first & second) / len(first | second)


def kept(texts: list[str]) -> list[str]:
    index = NearDuplicates()
    return [text for text in texts if index.admit(text) is None]


def corpus(number: int, seed: int = 0) -> Iterator[str]:
    """Persona-like texts of 25 words; every second one differs from an earlier one by up to five words."""
    dice = random.Random(seed)
    given: list[list[str]] = []
    for _ in range(number):
        if given and dice.random() < 0.5:
            text = list(dice.choice(given))
            for _ in range(dice.randrange(6)):
                text[dice.randrange(len(text))] = f"w{dice.randrange(9_000)}"
        else:
            text = [f"w{int(9_000 * dice.random() ** 3)}" for _ in range(25)]
        given.append(text)
        yield " ".join(text)


@given(texts=PERSONAS, threshold=st.sampled_from([0.3, 0.5, 0.9, 1.0]))
def test_what_is_refused_is_like_one_that_was_admitted(texts: list[str], threshold: float) -> None:
    index = NearDuplicates(threshold)
    admitted: list[str] = []
    for text in texts:
        twin = index.admit(text)
        if twin is None:
            admitted.append(text)
            continue
        assert twin.similarity == pytest.approx(jaccard(text, admitted[twin.index]))
        assert twin.similarity >= threshold
        assert twin.exact == (words(text) == words(admitted[twin.index]))
    assert len(index) == len(admitted)


@pytest.mark.long
def test_of_the_pairs_above_the_threshold_hardly_any_stays() -> None:
    texts = list(corpus(1_200))
    left = kept(texts)
    sets = [grams(words(text)) for text in left]
    missed = sum(
        len(one & other) / len(one | other) >= THRESHOLD for number, one in enumerate(sets) for other in sets[:number]
    )
    refused = len(texts) - len(left)
    # Of pairs at the threshold 1 in 100 is missed, of all above it far fewer.
    assert refused > 100
    assert missed <= refused * 0.02


@pytest.mark.process
def test_results_do_not_depend_on_the_process() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests/personas')\n"
        "from test_persona_near import corpus, kept\n"
        "print(hash('x'), len(kept(list(corpus(99)))), kept(list(corpus(99)))[-1])"
    )
    shown = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split(" ", 1)
        for _ in range(2)
    ]
    assert shown[0][0] != shown[1][0]
    assert shown[0][1] == shown[1][1]


def test_an_index_grows_without_losing_rows() -> None:
    index = NearDuplicates()
    texts = [" ".join(f"w{number * 7 + at}" for at in range(7)) for number in range(3_000)]
    assert all(index.admit(text) is None for text in texts)
    assert [index.admit(text).index for text in texts] == list(range(3_000))  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(("threshold", "permutations"), [(0.3, 128), (0.5, 128), (0.9, 128), (0.95, 64), (1.0, 128)])
def test_bands_find_nearly_all_pairs_at_the_threshold(threshold: float, permutations: int) -> None:
    bands, rows = choose_bands(permutations, threshold)
    assert bands * rows <= permutations
    assert 1 - (1 - threshold**rows) ** bands >= 0.99
    assert rows == permutations or 1 - (1 - threshold ** (rows + 1)) ** (permutations // (rows + 1)) < 0.99


def test_words_ignore_case_and_punctuation_and_characters_stand_for_words_where_none_are_set_apart() -> None:
    assert words("A “Smith”, of Łódź!") == words("a smith of łódź") == ["a", "smith", "of", "łódź"]
    assert words("日本の大工 Ken") == ["日", "本", "の", "大", "工", "ken"]
    assert words("🙂🙂") == ["🙂🙂"]
    assert words("एक शिक्षक की बेटी।") == ["एक", "शिक्षक", "की", "बेटी"]
    assert jaccard("शिक्षक का बेटा", "शिक्षक की बेटी") < 0.5
    assert jaccard("日本の大工です", "日本の大工だ") > 0.5


@pytest.mark.parametrize("wrong", [0.0, 1.1, float("nan")])
def test_thresholds_without_sense_are_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="expected more than 0 and at most 1"):
        NearDuplicates(wrong)


def test_without_datasketch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> None: ...

    monkeypatch.setattr("refinesynth.lazy_imports.find_spec", nothing)
    with pytest.raises(ConfigurationError, match=r"refinesynth\[diversity\]"):
        NearDuplicates()
