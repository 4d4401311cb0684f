"""How much of each source is taken, which of it, and what the sources are called."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.train.data import read_conversations, split
from refinesynth.train.data.conversation_reader import source_file, source_names, split_weight, take_share
from refinesynth.train.labelled_conversation import Conversation, TurnLabel


def said(number: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Goal {number}."}, {"role": "assistant", "content": f"Done {number}."}]
    return {"messages": messages, **fields}


def written(path: Path, records: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return str(path)


def told(conversations: list[Conversation]) -> list[str]:
    return [one.turns[0].content for one in conversations]


weights = st.floats(0.001, 4)
TALKS = [tiny.talk("cmr", id=f"t{k}") for k in range(3)] + [tiny.talk("c" * k, id=f"c{k}") for k in range(1, 18)]


@given(weights, st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_a_weight_takes_that_share_whole_passes_first_whatever_the_order(
    weight: float, seed: int, chance: random.Random
) -> None:
    taken = take_share(TALKS, weight, seed)
    number = max(1, round(weight * len(TALKS)))
    assert len(taken) == number
    times = Counter(one.id for one in taken)
    passes = number // len(TALKS)
    assert all(times[one.id] in {passes, passes + 1} for one in TALKS)
    mixed = list(TALKS)
    chance.shuffle(mixed)
    assert Counter(map(words, take_share(mixed, weight, seed))) == Counter(map(words, taken))


def words(one: Conversation) -> tuple[str, ...]:
    """Which is all that tells conversations apart: ids may be places in a file."""
    return tuple(turn.content for turn in one.turns)


@given(weights, weights, st.integers(0, 9))
def test_a_smaller_weight_takes_a_part_of_what_a_larger_one_takes(one: float, other: float, seed: int) -> None:
    small, large = sorted((one, other))
    within = Counter(each.id for each in take_share(TALKS, large, seed))
    assert Counter(each.id for each in take_share(TALKS, small, seed)) <= within


def test_another_seed_takes_others() -> None:
    assert len({tuple(one.id for one in take_share(TALKS, 0.3, seed)) for seed in range(5)}) > 1
    assert take_share([], 0.3, 0) == []


def test_what_is_taken_of_a_source_does_not_depend_on_the_others_or_on_where_it_lies(tmp_path: Path) -> None:
    records = [said(number) for number in range(40)]
    here, there = written(tmp_path / "a.jsonl", records), written(tmp_path / "b/moved.jsonl", records[::-1])
    alone = told(list(read_conversations([f"{here}:0.3"], seed=5)))
    assert len(alone) == 12
    beside = read_conversations([[said(100)], f"{there}:0.3", f"{here}:0.1"], seed=5)
    found = list(beside)
    assert sorted(told(found)[1:13]) == sorted(alone)
    assert set(told(found)[13:]) < set(alone)
    assert [(each.name, each.weight, each.conversations, each.taken) for each in beside.sizes] == [
        ("source 1", 1, 1, 1), ("moved.jsonl", 0.3, 40, 12), ("a.jsonl", 0.1, 40, 4),
    ]  # fmt: skip
    assert Counter(one.source for one in found) == {"source 1": 1, "moved.jsonl": 12, "a.jsonl": 4}


def test_the_same_conversations_are_taken_with_and_without_refinement(tmp_path: Path) -> None:
    talks = [tiny.talk("cmr", id=f"t{k}") for k in range(9)]
    plain, ablated = (
        [one.id for one in read_conversations([(talks, 0.5)], without_refinement=without)] for without in (False, True)
    )
    assert plain == ablated


@given(weights, st.floats(0.1, 0.5), st.integers(0, 9))
def test_no_conversation_of_a_mix_is_on_both_sides(weight: float, held_out: float, seed: int) -> None:
    mix = list(read_conversations([(TALKS[3:], weight), (TALKS[:3], 2)], seed=seed))
    # Their goals are all the same, so that what tells them apart is put into them.
    apart = [replace(one, turns=(one.turns[0]._replace(content=one.id), *one.turns[1:]), group=one.id) for one in mix]
    training, kept_out = split(apart, held_out, seed)
    assert not {one.id for one in training} & {one.id for one in kept_out}
    assert Counter(map(words, (*training, *kept_out))) == Counter(map(words, apart))


def test_names_weights_and_paths_that_look_like_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "odd:0.3", [said(1), said(2)])
    written(tmp_path / "odd", [said(3)])
    assert split_weight("odd:0.3") == ("odd:0.3", 1)
    assert len(list(read_conversations(["odd:0.3"]))) == 2
    assert len(list(read_conversations(["odd:0.3:2"]))) == 4
    assert told(list(read_conversations(["odd:3"]))) == ["Goal 3."] * 3
    assert split_weight("a/b:1e-1") == ("a/b", 0.1)
    table = [said(1)]
    assert split_weight((table, 2)) == (table, 2)
    assert split_weight(table) == (table, 1)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "-inf", "1e9"])
def test_a_weight_that_is_none_is_refused(tmp_path: Path, weight: str) -> None:
    path = written(tmp_path / "a.jsonl", [said(1)])
    for given_as in (f"{path}:{weight}", (path, float(weight))):
        with pytest.raises(InputError, match=r"a\.jsonl.* has the weight .*expected a share .*above 0"):
            read_conversations([given_as])


@pytest.mark.parametrize("weight", ["", "half", "0,3", "30%"])
def test_a_weight_that_is_no_number_is_refused(tmp_path: Path, weight: str) -> None:
    path = written(tmp_path / "a.jsonl", [said(1)])
    with pytest.raises(InputError, match=rf"a\.jsonl:{weight}'.* is no weight for .*a\.jsonl'; write a number above 0"):
        split_weight(f"{path}:{weight}")
    with pytest.raises(InputError, match=r"there is no file or folder 'nowhere\.jsonl'"):
        source_file("nowhere.jsonl")


def test_sources_have_distinct_labels() -> None:
    names = ["runs/a", "old/runs/a", "chat.jsonl", Path("/x/chat.jsonl"), [said(1)], "runs/b/"]
    assert source_names(names) == ["a", "a-2", "chat.jsonl", "chat.jsonl-2", "source 5", "b"]


def test_chat_without_flags_is_learned_whole_and_said_to_be_so(tmp_path: Path) -> None:
    mistake = {"role": "assistant", "content": "Action: fly"}
    marked = said(1, id="m")
    marked["messages"] = [*marked["messages"][:1], {**mistake, "loss": False}, *said(2)["messages"]]
    marked["messages"][-1]["loss"] = True
    sharegpt = {
        "id": "s",
        "system": "Be kind.",
        "conversations": [
            {"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."},
            {"from": "human", "value": "Bye."}, {"from": "gpt", "value": "Goodbye."},
        ],
    }  # fmt: skip
    nulls = {"messages": [{**message, "loss": None} for message in said(7)["messages"]]}
    reading = read_conversations([written(tmp_path / "chat.jsonl", [said(3), marked, sharegpt, nulls])])
    plain, flagged, spoken, tabled = reading
    assert [plain.marked, flagged.marked, spoken.marked, tabled.marked] == [False, True, False, False]
    assert plain.trained() == tabled.trained() == (False, True)
    assert flagged.trained() == (False, False, False, True)
    assert [turn.label for turn in flagged.turns if turn.label] == [TurnLabel.MISTAKE, TurnLabel.REFINEMENT]
    assert spoken.trained() == (False, False, True, False, True)
    assert (reading.sizes[0].unmarked, reading.sizes[0].conversations) == (3, 4)
