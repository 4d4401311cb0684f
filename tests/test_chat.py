"""Trajectories as chat messages: nothing seen is lost, and exactly the mistakes give no loss."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from samples import dm, player, trajectory

from refinesynth.chat import (
    INSTRUCTIONS,
    Message,
    parse_player,
    render_action,
    render_player,
    render_task,
    render_turns,
    split_thought,
    to_messages,
)
from refinesynth.testing import texts, turns, valid_scripts
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, MalformedTurn, PlayerTurn, Script, flagged_turns

Played = PlayerTurn | DungeonMasterTurn
ANY_TURNS: st.SearchStrategy[list[Played]] = st.lists(turns(), max_size=8).map(
    lambda drawn: [turn for turn in drawn if not isinstance(turn, MalformedTurn)]
)
SCRIPT = Script(
    introduction=" You are in a kitchen. ",
    environment={"secret": "the mug is under the bed"},
    goal="Find the mug.",
    completion_conditions=("secretly: the mug is held",),
    actions=(
        ActionSpec(
            name="take {x} from {y}", description="Pick up.", pattern="p", parameters={"x": ("a", "b"), "y": ()}
        ),
        ActionSpec(name="look", pattern="p"),
    ),
)


def test_the_task_tells_what_a_player_may_know_and_no_more() -> None:
    assert render_task(SCRIPT) == (
        "You are in a kitchen.\n\nGoal: Find the mug.\n\nAvailable actions:\n"
        "- take {x} from {y}: Pick up. ({x} is one of: a, b)\n- look\n\n" + INSTRUCTIONS
    )
    assert render_task(SCRIPT.model_copy(update={"introduction": " "})).startswith("You are in an environment that")


def takes(name: str, **parameters: tuple[str, ...]) -> ActionSpec:
    return ActionSpec(name=name, pattern="p", parameters=parameters)


def lines_for(*actions: ActionSpec) -> list[str]:
    told = render_task(SCRIPT.model_copy(update={"actions": actions}))
    return told.split("Available actions:\n")[1].removesuffix(f"\n\n{INSTRUCTIONS}").split("\n")


def test_values_that_several_actions_take_are_told_once() -> None:
    assert lines_for(takes("take {x}", x=("a", "b")), takes("drop {x} in {y}", x=("a", "b"), y=("c",)), takes("look")) == [
        "- take {x}", "- drop {x} in {y} ({y} is one of: c)", "- look", "", "{x} is one of: a, b",
    ]  # fmt: skip


VALUES = st.lists(st.sampled_from(("mug", "blue mug", "é")), max_size=2, unique=True).map(tuple)
PARAMETERS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)


@given(st.lists(PARAMETERS, max_size=5))
def test_each_actions_values_can_be_read_from_the_task_alone_and_cost_no_more(given: list[dict[str, Any]]) -> None:
    actions = [takes(" ".join([f"act{at}", *(f"{{{name}}}" for name in own)]), **own) for at, own in enumerate(given)]
    lines = lines_for(*actions)
    choice = re.compile(r"\{(\w)\} is one of: ([^;)]+)")
    everywhere = {name: values for line in lines[len(actions) :] for name, values in choice.findall(line)}
    for action, line in zip(actions, lines, strict=False):
        own = dict(choice.findall(line))
        assert not own.keys() & everywhere.keys()
        told = {name: tuple(values.split(", ")) for name, values in (everywhere | own).items()}
        assert {name: told.get(name, ()) for name in action.placeholders} == action.parameters
    assert len("\n".join(lines)) <= len("\n".join(map(render_action, actions)))


@given(valid_scripts(), ANY_TURNS)
def test_of_any_turns_only_assistant_messages_without_a_mistake_give_loss(script: Script, played: list[Played]) -> None:
    wrong = set(flagged_turns(played))
    groups = joined(played)
    spoken = [message for message in render_turns(script, played) if message.role == "assistant"]
    assert [message.loss for message in spoken] == [not wrong & set(group) for group in groups]
    assert not any(message.loss for message in render_turns(script, played) if message.role == "user")


def joined(played: Sequence[Played]) -> list[list[int]]:
    """Indices of player turns, those that follow each other directly together."""
    groups: list[list[int]] = []
    for at, turn in enumerate(played):
        if isinstance(turn, PlayerTurn):
            if at and isinstance(played[at - 1], PlayerTurn):
                groups[-1].append(at)
            else:
                groups.append([at])
    return groups


@given(valid_scripts(), ANY_TURNS)
def test_roles_alternate_and_nothing_is_lost(script: Script, played: list[Played]) -> None:
    said: list[tuple[str, list[str]]] = [("user", [render_task(script)])]
    for turn in played:
        role, text = ("assistant", render_player(turn)) if isinstance(turn, PlayerTurn) else ("user", turn.observation)
        if said[-1][0] == role:
            said[-1][1].append(text)
        else:
            said.append((role, [text]))
    messages = render_turns(script, played)
    assert [(message.role, message.content) for message in messages] == [
        (role, "\n\n".join(all_)) for role, all_ in said
    ]
    assert [message.role for message in messages] == (["user", "assistant"] * len(messages))[: len(messages)]


@given(valid_scripts(), ANY_TURNS, st.integers(0, 8))
def test_what_the_player_saw_before_is_what_it_sees_later(script: Script, played: list[Played], length: int) -> None:
    earlier, later = render_turns(script, played[:length]), render_turns(script, played)
    assert [message.content for message in earlier[:-1]] == [message.content for message in later[: len(earlier) - 1]]
    assert later[len(earlier) - 1].content.startswith(earlier[-1].content)


def test_a_trajectory_is_rendered_whole() -> None:
    played = (player("look"), dm("No.", "logic"), player("take a from b"), dm("Task Succeed"))
    whole = trajectory(*played, script=SCRIPT)
    assert to_messages(whole)[1:] == [
        Message("assistant", "Thought: I try this.\nAction: look", loss=False, label="mistake"),
        Message("user", "No.", loss=False),
        Message("assistant", "Thought: I try this.\nAction: take a from b", loss=True, label="player"),
        Message("user", "Task Succeed", loss=False),
    ]


LABELS = ("thought", "action", "observation")


def holds_label(text: str) -> bool:
    """Whether a line begins with a label, however it is dressed up."""
    lines = (line.strip(" \t>#*_-").casefold() for line in text.split("\n"))
    return any(
        line.startswith(label) and line[len(label) :].lstrip(" \t*_").startswith(":")
        for line in lines
        for label in LABELS
    )


PAIRS = ("**", "`", '"', "'", "“”", "\u2018\u2019")


def is_wrapped(action: str) -> bool:
    return any(action.startswith((pair, pair[0])) and action.endswith((pair, pair[-1])) for pair in PAIRS)


def holds_blank_line(action: str) -> bool:
    return any(not line.strip() for line in action.split("\n")[1:-1])


@given(texts(), texts())
@example("*Perhaps* the mug", "_look_ around")
@example('"Quoted."\n\nSecond paragraph.', "write note:\n  two lines")
@example("'Tis", "say 'tis the dog's")
@example("A `tick`", "take `mug` from `table`")
@example("```\nsome code\n```", "write #1: **bold** text")
@example("Thoughts: none", "actions: none")
def test_what_is_rendered_is_parsed_back(thought: str, action: str) -> None:
    thought, action = thought.strip(), action.strip()
    assume(action and not holds_label(thought) and not holds_label(action))
    assume(not is_wrapped(action) and not holds_blank_line(action))
    turn = PlayerTurn(thought=thought, action=action)
    assert parse_player(render_player(turn)) == turn


WORDS = st.sampled_from(
    (
        *("Thought:", "Action:", "**Action:**", "Observation:", "action :", "look", "* ", "> ", "*", "_"),
        *("\n", " ", "\n\n", "\r\n", "`", "```", "```\n", "**", '"', "'", "“", "”"),
    )
)


@given(texts() | st.lists(WORDS, max_size=12).map("".join))
def test_any_text_is_a_turn_or_a_value_error_and_reading_it_twice_changes_nothing(text: str) -> None:
    try:
        turn = parse_player(text)
    except ValueError as error:
        message = str(error)
        assert "Action:" in message
        return
    assert turn.action
    assert not holds_blank_line(turn.action)
    assert parse_player(render_player(turn)) == turn


@given(texts() | st.lists(WORDS, max_size=12).map("".join))
def test_nothing_but_a_label_is_lost_where_a_thought_is_split_off(text: str) -> None:
    thought, rest = split_thought(text)
    assert text.endswith(rest)
    before = text[: len(text) - len(rest)].strip()
    assert before.endswith(thought)
    assert re.fullmatch(r"[\s>#*_-]*(thought[\s:*_]*)?", before.removesuffix(thought), re.IGNORECASE)
    if thought:
        assert parse_player_or_none(rest) == parse_player_or_none(text)


def parse_player_or_none(text: str) -> str | None:
    try:
        return parse_player(text).action
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("Thought: a\nAction: b", "a", "Action: b"),
        ("**Thought:** a\nb\n\n**Action:** `b`\n\nc", "a\nb", "**Action:** `b`\n\nc"),
        ("Action: b", "", "Action: b"),
    ],
)
def test_a_thought_is_split_off(text: str, thought: str, rest: str) -> None:
    assert split_thought(text) == (thought, rest)


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("Thought: a\nAction: b", "a", "b"),
        ("**Thought:** a\n**Action:** b", "a", "b"),
        ("### Thought: a\n> Action: b", "a", "b"),
        ("- Thought: a\n* Action: `b`", "a", "b"),
        ("Thought: a\nmore\n\nAction:\n```\nb c\n```", "a\nmore", "b c"),
        ("Action: b", "", "b"),
        ("Thought: a\nAction: b\nObservation: You win.\nThought: c\nAction: d", "a", "b"),
        ("Thought: a\nAction: b\nThought: c\nAction: d\nObservation: e", "a", "b"),
        ("Thought: a\nAction: b\nThought: a\nAction: `b`", "a", "b"),
        ("Thought: a\nAction: b\nAfter action: It opens.\nThought: c\nAction: d", "a", "b"),
        ("Thought: a\nAction: b\n**After each action:** It opens.\nAction: d", "a", "b"),
        ("Thought: a\nAfter action: I will know.\nAction: b", "a\nAfter action: I will know.", "b"),
        ("Thought: a\nAction: wait\nAfter actions, rest", "a", "wait\nAfter actions, rest"),
        ("Thought: a\nAction: say `x` or `y`", "a", "say `x` or `y`"),
        ("**Thought: a\nAction: b", "a", "b"),
        ("Thought: a\nAction: open door\n\nThis should work.", "a", "open door"),
        ("Thought: a\nAction: open door\r\n \t\r\nThis should work.", "a", "open door"),
        ("Thought: a\n\nb\n\nAction:\n\nopen door\nwith key\n\n\nSo.\n\nThere.", "a\n\nb", "open door\nwith key"),
        ("Thought: a\nAction: `open door`\n\nThen `look`.", "a", "open door"),
        ("Thought: a\nAction:\n```\n\nopen door\n\nlook\n```", "a", "open door"),
        ('Thought: a\nAction: "open door"', "a", "open door"),
        ("Thought: a\nAction: **`open door`**", "a", "open door"),
        ('Thought: a\nAction: "', "a", '"'),
    ],
)
def test_how_models_write_turns(text: str, thought: str, action: str) -> None:
    assert parse_player(text) == PlayerTurn(thought=thought, action=action)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line that begins"),
        ("I would take the action: look", "no line that begins"),
        ("Thought: a\nAction: b\nAction: c", "more than one"),
        ("Action: first look, then\nThought: really\nAction: take key", "more than one"),
        ("Thought: a\nAction: b\nThought: c\nAction: b\nThought: d\nAction: e", "more than one"),
        ("Thought: a\nAction:  \n", "is empty"),
        ("Thought: a\nAction: ``", "is empty"),
        ("Thought: a\nAction:\nObservation: b", "is empty"),
    ],
)
def test_what_is_no_turn_is_explained_to_the_model(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_player(text)
