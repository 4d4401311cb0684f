"""HotpotQA, over a small file of the true structure."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.evaluate.benchmarks import read_instances
from refinesynth.evaluate.environments.environment import Instance
from refinesynth.evaluate.environments.hotpotqa import FILE, HotpotQA, scores

pytest.importorskip("rank_bm25", reason="needs the extra hotpotqa")

QUESTION: dict[str, Any] = {
    "_id": "5a8b",
    "question": "Were the river that rises on Mount Ash and the lake below it named by the same person?",
    "answer": "yes",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["Ash River", 0], ["Lake Mirn", 1]],
    "context": [
        [
            "Ash River",
            ["The Ash River rises on Mount Ash.", " Ada Pell named it.", " It is cold.", " A.", " B.", " C."],
        ],
        ["Lake Mirn", ["Lake Mirn is a lake.", " Ada Pell named the lake.", " Nobody swims in the lake."]],
        ["Mount Ash", ["Mount Ash is a hill."]],
    ],
}


def folder(path: Path, *rows: object) -> Path:
    (path / "hotpotqa").mkdir()
    (path / "hotpotqa" / FILE).write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    (found,) = read_instances("hotpotqa", data=folder(tmp_path, QUESTION))
    return found


@pytest.fixture
def questions(instance: Instance) -> HotpotQA:
    environment = HotpotQA()
    start = environment.reset(instance)
    assert start.goal == QUESTION["question"]
    return environment


def test_the_solution_wins(questions: HotpotQA):
    steps = [
        questions.step(action)
        for action in (
            *(f"search[{title}]" for title, _ in QUESTION["supporting_facts"]),
            f"finish[{QUESTION['answer']}]",
        )
    ]
    assert [one.observation.partition(".")[0] for one in steps[:2]] == [
        "The Ash River rises on Mount Ash",
        "Lake Mirn is a lake",
    ]
    assert steps[-1].success
    assert steps[-1].measures == {"em": 1.0, "f1": 1.0}


def test_a_search_shows_five_sentences_of_a_title_in_any_case(questions: HotpotQA):
    step = questions.step("Search[ash river]")
    assert step.observation.endswith(" B.")
    assert not step.refused


def test_a_search_of_no_title_names_those_that_are_similar(questions: HotpotQA):
    step = questions.step("search[who swims in lakes]")
    assert step.refused
    assert step.observation.startswith("Could not find who swims in lakes. Similar: ['Lake Mirn', ")


def test_lookups_go_through_a_paragraph(questions: HotpotQA):
    assert questions.step("lookup[lake]").refused
    questions.step("search[Lake Mirn]")
    said = [questions.step("lookup[lake]").observation for _ in range(4)]
    assert said == [
        "(Result 1 / 3) Lake Mirn is a lake.",
        "(Result 2 / 3) Ada Pell named the lake.",
        "(Result 3 / 3) Nobody swims in the lake.",
        "No more results.",
    ]
    assert questions.step("lookup[Pell]").observation.startswith("(Result 1 / 1)")


@pytest.mark.parametrize(
    ("answer", "expected", "exact", "f1"),
    [
        ("The Ash River.", "ash river", 1.0, 1.0),
        ("Ash", "Ash River", 0.0, 2 / 3),
        ("the the", "a", 1.0, 0.0),
        ("yes indeed", "yes", 0.0, 0.0),
        ("no", "yes", 0.0, 0.0),
        ("river river", "river", 0.0, 2 / 3),
        ("", "river", 0.0, 0.0),
    ],
)
def test_scores_are_those_of_hotpotqas_own_evaluation(answer: str, expected: str, exact: float, f1: float):
    assert scores(answer, expected) == (exact, pytest.approx(f1))


HOSTILE = ("search[", "finish[]", "search[]", "lookup[]", "x" * 10_000, f"search[{'lake ' * 3_000}]", "finish[a]\n]")


@given(st.text(max_size=40) | st.sampled_from(HOSTILE))
def test_any_text_is_an_action(text: str):
    environment = HotpotQA()
    values = {"question": "q", "answer": "a", "paragraphs": QUESTION["context"], "gold": ["Ash River"]}
    environment.reset(Instance("one", values))
    step = environment.step(text)
    assert len(step.observation) < 2_000
    assert step.done == (step.observation == "The task is finished.")


@pytest.mark.parametrize(
    ("rows", "message"), [([{**QUESTION, "context": 3}], "question 1 .* cannot be read"), ([], "has no instances")]
)
def test_a_bad_file_is_said(tmp_path: Path, rows: list[object], message: str):
    with pytest.raises(InputError, match=message):
        read_instances("hotpotqa", data=folder(tmp_path, *rows))
    (tmp_path / "hotpotqa" / FILE).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        read_instances("hotpotqa", data=tmp_path)
