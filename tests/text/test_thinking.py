"""Thoughts in the text of an answer, in every form that models write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.text.thinking import Split, split_thinking

ANSWER = 'Thought: I see <b>it</b> [1].\nAction: go to "hall"'
OBJECT = '{"thought": "a mark, </think>, in {words}", "observation": "[2] <think> \\"x\\""}'
DRAFT = 'Perhaps {"observation": "You\nThought: no\nAction: wait'

FORMS = {
    "</think>": (
        "<think>{}</think>{}",
        "\n\n <think>\n{}\n</think>\n\n{}",
        "{}\n</think>\n\n{}",
        "<THINK>{}</Think>{}",
    ),
    "</thinking>": ("<thinking>{}</thinking>\n<answer>{}</answer>", "{}</thinking><output>{}</output>"),
    "</thought>": ("<thought>{}</thought>{}",),
    "</reasoning>": ("<reasoning>{}</reasoning>{}", "{}</reasoning>{}"),
    "</seed:think>": ("<seed:think>{}</seed:think>{}", "{}</seed:think>{}"),
    "</budget:thinking>": ("<budget:thinking>{}</budget:thinking>{}",),
    "</longcat_think>": ("<longcat_think>{}</longcat_think>{}",),
    "</think:opensource>": ("<think:opensource>{}</think:opensource>{}",),
    "[/THINK]": ("[THINK]{}[/THINK]{}", "{}[/THINK]{}"),
    "\u25c1/think\u25b7": ("\u25c1think\u25b7{}\u25c1/think\u25b7{}", "{}\u25c1/think\u25b7{}"),
    "<|/think|>": ("<|think|>{}<|/think|>{}",),
    "<|end_of_thought|>": ("<|begin_of_thought|>{}<|end_of_thought|>\n<|begin_of_solution|>{}<|end_of_solution|>",),
    "<|END_THINKING|>": (
        "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
        "{}<|END_THINKING|>{}",
    ),
    "<|inner_suffix|>": ("<|inner_prefix|>{}<|inner_suffix|>{}",),
    "<channel|>": ("<|channel>thought\n{}<channel|>{}", "{}<channel|>{}"),
    "<unused95>": ("<unused94>thought\n{}<unused95>{}",),
    "<|channel|>": (
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
        "<|start|>assistant<|channel|>analysis<|message|>{}<|start|>assistant<|channel|>final<|message|>{}",
        "{}<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{}<|end|>",
        "assistant<|channel|>analysis<|message|>{}<|end|><|channel|>commentary<|message|>{}<|end|>",
    ),
    "assistantfinal": ("analysis{}assistantfinal{}",),
    "Here is my response:": ("Here's my thought process: {}\nHere is my response: {}",),
}


@pytest.mark.parametrize("answer", [ANSWER, OBJECT, f"```json\n{OBJECT}\n```", ""])
def test_thoughts_and_answer_are_told_apart_in_every_form(answer: str) -> None:
    wrong = [
        (written, split)
        for form, shapes in FORMS.items()
        for shape in shapes
        for written in [shape.format(DRAFT, answer)]
        if (split := split_thinking(written)) != Split(DRAFT, answer, form)
    ]
    assert not wrong


LEFT_ALONE = (
    "", "plain", ANSWER, OBJECT, f"```json\n{OBJECT}\n```", "[1, 2]", "1 < 2 [sic]",
    "Thought: I <think> so </think>\nAction: go",
    '{"words": "</think>", "trailing": "comma",}',
    '{"words": "</think>{} and [/THINK][1]", "number": 3}',
    '["</think>", {"a": "</reasoning>"}]',
    "Thought: the sign says <|channel|>.\nAction: go",
    "analysis of the assistant's final words",
    "Here is my thought process: none",
    "<answer>{}</answer>", "<unthinking>x</unthinking>", "<|message|>",
    # Letters that are no i and k, and equal them if case is ignored.
    "[TH\u0131NK]a[/TH\u0131NK]b", "[TH\u0130NK]a[/TH\u0130NK]b", "<|thin\u212a|>a<|/thin\u212a|>b", "a</th\u0131nk>b",
)  # fmt: skip


def test_marks_within_an_answer_are_left_alone() -> None:
    assert [text for text in LEFT_ALONE if split_thinking(text) != Split("", text, None)] == []


ODD = (
    ("<think>a</think>\n<think>b</think>c", Split("a\n\nb", "c", "</think>")),
    ("<reasoning>a</reasoning>b</think>c", Split("a\n\nb", "c", "</think>")),
    ("a <think> b </think> c </think> d", Split("a <think> b </think> c", "d", "</think>")),
    ("<think></think>\n\nanswer", Split("", "answer", "</think>")),
    ("<think>never closed", Split("never closed", "", "</think>")),
    ("<think>other mark</thinking> answer", Split("other mark</thinking> answer", "", "</think>")),
    ('{"draft": 1}</think>{"a": 2}', Split('{"draft": 1}', '{"a": 2}', "</think>")),
    ('{"draft": "cut</think>{"a": 2}', Split('{"draft": "cut', '{"a": 2}', "</think>")),
    ('a</think>{"b": "</think>"}', Split("a", '{"b": "</think>"}', "</think>")),
    ("<|channel|>analysis<|message|>cut o", Split("cut o", "", "<|channel|>")),
    (
        '<|channel|>analysis<|message|>a<|channel|>commentary to=functions.go <|constrain|>json<|message|>{"x": 1}',
        Split("a", '<|channel|>commentary to=functions.go <|constrain|>json<|message|>{"x": 1}<|call|>', "<|channel|>"),
    ),
    (
        ' to=functions.go<|channel|>commentary json<|message|>{"x": 1}',
        Split("", 'to=functions.go<|channel|>commentary json<|message|>{"x": 1}<|call|>', "<|channel|>"),
    ),
    (
        'analysisI goassistantcommentary to=functions.go json{"x": 1}',
        Split("I go", 'to=functions.go json{"x": 1}', "assistantcommentary"),
    ),
)


def test_odd_texts() -> None:
    assert [split_thinking(text) for text, _ in ODD] == [split for _, split in ODD]


PIECES = (
    "<think>", "</think>", "<think></think>", "a</think>", "</reasoning>", "[", "{", '"', "\\", " ", "<", "<|channel|>",
    "<|message|>", "<|channel|>analysis<|message|>", "<|end|>", "analysis", "assistant", "assistantfinal", "assistant\n",
    '["</think>"]', '["</think>', '{"</think>{', "<seed:think>", "Here is my thought process:", "Here is my ", "to=",
)  # fmt: skip


def test_hostile_text_takes_linear_time() -> None:
    took: dict[str, float] = {}
    for piece in PIECES:
        began = time.process_time()
        split_thinking(piece * (30_000 // len(piece)))
        split_thinking("analysis<|channel|></think>" + piece * (30_000 // len(piece)))
        took[piece] = time.process_time() - began
    # Quadratic time would be seconds.
    assert max(took.values()) < 0.3, took


@given(st.lists(st.sampled_from((*PIECES, "\n", "words"))).map("".join))
def test_nothing_is_raised_and_nothing_made_up(text: str) -> None:
    split = split_thinking(text)
    assert (split.form is None) == (split == Split("", text, None))
    assert len(split.thinking) + len(split.text) <= len(text) + len("<|message|><|call|>") * text.count("<|message|>")
