"""Words of a trajectory that stand in an evaluation set are found, all of them, wherever they stand, and nothing
else."""

import unicodedata
from pathlib import Path

import orjson
import pytest
from diversity_scripts import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import dm, player
from samples import trajectory as sample

from refinesynth.diversity import Contamination
from refinesynth.diversity.contamination import MIN_WORDS
from refinesynth.errors import InputError
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory

FEW = settings(max_examples=max(5, settings().max_examples // 2))
WORDS = st.lists(
    st.sampled_from(["go", "to", "the", "red", "ball", "near", "a", "box", "and", "then", "stop", "Ünter", "7"]),
    max_size=40,
).map(" ".join)


def trajectory(*observations: str, thought: str = "Hm.", goal: str = "Win.") -> Trajectory:
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for number, observation in enumerate(observations or ("Task Succeed",)):
        turns += player(f"step {number}", thought), dm(observation)
    made = drawn(0).model_copy(update={"goal": goal, "environment": {}, "introduction": ""})
    return sample(*turns, script=made)


def of(tmp_path: Path, *texts: str, words: int = 5, name: str = "eval.jsonl") -> Contamination:
    path = tmp_path / name
    path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
    return Contamination([path], words=words)


OTHER_TEXT = " ".join(f"other{number}" for number in range(14))
"""Text that no trajectory has: a set without a text of enough words is refused."""


def shared_words(text: str, others: list[str], words: int) -> set[int]:
    """The same by brute force: numbers of the words that are in a shared run."""
    mine = text.casefold().split()
    found: set[int] = set()
    for other in others:
        theirs = other.casefold().split()
        length = min(words, len(theirs))
        if length < words and length < MIN_WORDS:
            continue
        runs = {tuple(theirs[at : at + length]) for at in range(len(theirs) - length + 1)}
        for at in range(len(mine) - length + 1):
            if tuple(mine[at : at + length]) in runs:
                found.update(range(at, at + length))
    return found


@FEW
@given(text=WORDS, others=st.lists(WORDS, max_size=4), words=st.integers(1, 14))
def test_it_finds_what_a_plain_search_finds(
    tmp_path_factory: pytest.TempPathFactory, text: str, others: list[str], words: int
) -> None:
    found = of(tmp_path_factory.mktemp("eval"), *others, OTHER_TEXT, words=words).overlaps(trajectory("Nothing.", text))
    mine = [one for one in found if one.where == "turn 4 observation"]
    assert {at for one in mine for at in range(one.start, one.start + one.words)} == shared_words(text, others, words)
    for one in mine:
        assert one.text == " ".join(text.split()[one.start : one.start + one.words])


@FEW
@given(text=WORDS, before=st.lists(WORDS, max_size=3), more=st.lists(WORDS, max_size=3), first=st.booleans())
def test_another_evaluation_set_never_takes_words_away(
    tmp_path_factory: pytest.TempPathFactory, text: str, before: list[str], more: list[str], first: bool
) -> None:
    folder = tmp_path_factory.mktemp("eval")
    alone = of(folder, *before, OTHER_TEXT, name="a.jsonl")
    of(folder, *more, OTHER_TEXT, name="b.jsonl")
    names = ("b.jsonl", "a.jsonl") if first else ("a.jsonl", "b.jsonl")
    both = Contamination([folder / name for name in names], words=5)

    def covered(contamination: Contamination) -> set[tuple[str, int]]:
        overlaps = contamination.overlaps(trajectory(text, text))
        return {(one.where, at) for one in overlaps for at in range(one.start, one.start + one.words)}

    assert covered(alone) <= covered(both)
    assert len(alone) <= len(both)


@pytest.mark.parametrize(
    "where", ["goal", "turn 1 thought", "turn 2 observation", "actions", "environment", "introduction"]
)
def test_it_says_where_and_from_what(tmp_path: Path, where: str) -> None:
    text = "Walk to the fridge, open it; take the cold beer and shut it again!"
    made = trajectory()
    match where:
        case "goal":
            made = trajectory(goal=f"First: {text.upper()}")
        case "turn 1 thought":
            made = trajectory(thought=f"... {text}")
        case "turn 2 observation":
            made = trajectory(text)
        case "actions":
            acts = [
                PlayerTurn(thought="", action=part)
                for part in ("walk to the fridge", "open it", "take the cold beer", "and shut it again")
            ]
            turn = made.turns[1]
            made = made.model_copy(update={"turns": tuple(turn_ for act in acts for turn_ in (act, turn))})
        case "environment":
            world = {"walk to": {"the fridge": ["open", "it", {"take the cold": "beer and shut it again"}]}}
            made = made.model_copy(update={"script": made.script.model_copy(update={"environment": world})})
        case _:
            made = made.model_copy(update={"script": made.script.model_copy(update={"introduction": text})})
    found = of(tmp_path, "Something else of eight words or more, it is.", text, words=13).overlaps(made)
    assert [(one.where, one.words, one.source) for one in found] == [(where, 14, f"{tmp_path / 'eval.jsonl'}:2")]
    assert found[0].text.casefold().startswith("walk to the fridge open it")


CHINESE = "你站在厨房里厨房里有一个架子和一张桌子。请把架子上的杯子拿起来。"


@pytest.mark.parametrize("text", ["caf\u00e9 n\u00e9e \u00c9lodie ne vend rien \u00e0 midi", CHINESE])
def test_composed_letters_and_scripts_without_spaces_are_compared(tmp_path: Path, text: str) -> None:
    contamination = of(tmp_path, unicodedata.normalize("NFD", text))
    assert [one.where for one in contamination.overlaps(trajectory(text))] == ["turn 2 observation"]


def test_vowel_signs_tell_words_apart(tmp_path: Path) -> None:
    contamination = of(tmp_path, "एक शिक्षक का बेटा जो गाँव में रहता है", words=5)
    assert contamination.overlaps(trajectory("एक शिक्षक की बेटी जो गाँवों में रहती हैं")) == ()


def test_short_texts_count_as_a_whole_and_very_short_ones_not_at_all(tmp_path: Path) -> None:
    contamination = of(tmp_path, "go to the red ball", "pick up the green key behind the yellow door", words=13)
    assert len(contamination) == 1
    assert contamination.overlaps(trajectory("You go to the red ball.")) == ()
    assert contamination.overlaps(trajectory("pick up the green key behind the yellow")) == ()
    (found,) = contamination.overlaps(trajectory("Now pick up the green key behind the yellow door, please."))
    assert (found.start, found.words) == (1, 9)


def test_too_many_runs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.diversity.contamination.MAX_RUNS", 100)
    few, more = " ".join(map(str, range(90))), " ".join(map(str, range(1_000, 1_090)))
    assert len(of(tmp_path, few, words=3)) == 88
    with pytest.raises(InputError, match="more than 100"):
        of(tmp_path, few, more, words=3)


def test_a_run_of_no_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 or more"):
        of(tmp_path, "a", words=0)
