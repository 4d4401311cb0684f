"""Our own exports read again: what a form says comes back, and nothing else is made up."""

from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import SHED, SHED_GROUNDED, accepted, dm, in_messages, player, provenance, trajectory

from refinesynth.chat import INSTRUCTIONS, Message, ToolMessage, to_messages, to_react, to_tool_messages
from refinesynth.chat.react import FORMER_INSTRUCTIONS
from refinesynth.errors import InputError
from refinesynth.export import Form, Format, export
from refinesynth.imports import read_record
from refinesynth.imports.importing import PLAY, RULES
from refinesynth.testing import turns, valid_drafts
from refinesynth.train.data.record_forms import read_record as read_training_record
from refinesynth.train.labelled_conversation import LossOn, TurnLabel
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    MalformedTurn,
    ParameterType,
    PlayerTurn,
    Trajectory,
    Usage,
)

ORIGIN = provenance(
    models={"player": "gpt-4o"}, seed=7, rules="strict()", usage=Usage(requests=9, input_tokens=1_000), cost_usd=0.25
)


def of_draft(draft: Draft) -> Trajectory:
    return accepted(draft, id="000002-def", origin=ORIGIN)


VALID = valid_drafts().map(of_draft)

ANY = (
    st.lists(turns(surrogates=False), min_size=1, max_size=8)
    .map(lambda drawn: Draft(script=SHED_GROUNDED, turns=tuple(drawn)))
    .filter(lambda draft: any(not isinstance(turn, MalformedTurn) for turn in draft.turns))
    .map(of_draft)
)
"""Turns in any order, with any text that a file can hold."""


def exported(one: Trajectory, format: str | Format, form: Form = "react") -> dict[str, Any]:  # noqa: A002
    (record,) = export([one], format, form=form)
    # As a file gives it back.
    return orjson.loads(orjson.dumps(record))


def judged(one: Trajectory) -> list[Message]:
    """Up to the last turn of the assistant, which is where the chat forms end."""
    messages = to_messages(one)
    while messages[-1].role == "user":
        messages.pop()
    return messages


def says_which_are_mistakes(one: Trajectory) -> bool:
    """A record without an id of which the last message alone is right looks like one of a split."""
    *before, last = [message.loss for message in to_messages(one) if message.role == "assistant"]
    return any(before) or not before or not last


@given(VALID | ANY)
def test_a_document_holds_the_whole_trajectory(one: Trajectory) -> None:
    assert read_record(exported(one, "atif"), "atif", "file:1") == one


def spoken(one: Trajectory) -> list[ToolMessage]:
    """Messages with calls up to the last of the assistant, which is where the chat forms end."""
    messages = to_tool_messages(one)
    return messages[: max(at for at, message in enumerate(messages) if message.role == "assistant") + 1]


@pytest.mark.parametrize("name", ["atif", "trl", "axolotl", "tinker", "slime"])
@given(VALID, st.lists(st.booleans(), min_size=1))
def test_messages_of_several_calls_come_back_as_they_were(name: str, one: Trajectory, chosen: list[bool]) -> None:
    several = in_messages(one, chosen)
    # Without a message to train on whole, there is no record.
    assume(name == "atif" or any(message.loss for message in spoken(several)))
    record = exported(several, name, "react" if name == "atif" else "tools")
    found = read_record(record, "atif" if name == "atif" else "openai", "file:1")
    there, back = spoken(several), spoken(found)
    assert [(m.role, m.loss, [(c.id, c.label) for c in m.calls]) for m in back] == [
        (m.role, m.loss, [(c.id, c.label) for c in m.calls]) for m in there
    ]
    assert found == several or name != "atif"
    if name != "atif":
        again = exported(found.model_copy(update={"id": several.id}), name, "tools")
        assert again["messages"] == record["messages"]
        assert again.keys() == record.keys()
        assert all(again.get(key) == record.get(key) for key in ("labels", "turn_labels"))
    trained, own = (
        read_training_record(each, "file:1", "tools") for each in (record if name != "atif" else found, several)
    )
    assert [(turn.label, turn.mistakes, turn.calls) for turn in trained.turns] == [
        (turn.label, turn.mistakes, turn.calls) for turn in own.turns[: len(trained.turns)]
    ]


@given(VALID, st.lists(st.booleans(), min_size=1))
def test_a_format_with_a_flag_for_a_message_alone_masks_it_whole(one: Trajectory, chosen: list[bool]) -> None:
    several = in_messages(one, chosen)
    assume(any(message.loss for message in spoken(several)))
    record = exported(several, "openai", "tools")
    weights = [message["weight"] for message in record["messages"] if message["role"] == "assistant"]
    labelled = ([call.label for call in message.calls] for message in spoken(several) if message.calls)
    assert weights == [int("mistake" not in labels) for labels in labelled]
    assert record["parallel_tool_calls"] == any(
        len(message.get("tool_calls", ())) > 1 for message in record["messages"]
    )


@given(VALID)
def test_the_papers_keys_hold_persona_script_and_turns(one: Trajectory) -> None:
    found = read_record(exported(one, "paper"), "paper", "file:1")
    assert found.model_copy(update={"provenance": one.provenance}) == one
    assert (found.provenance.play, found.provenance.rules) == (PLAY, RULES)


@pytest.mark.parametrize("name", ["agentinstruct", "openai"])
@given(VALID)
def test_conversations_come_back_as_they_were(name: str, one: Trajectory) -> None:
    assume(name == "agentinstruct" or says_which_are_mistakes(one))
    record = exported(one, name)
    found = read_record(record, name, "file:1")
    assert judged(found) == judged(one)
    assert exported(found, name) == record
    now, then = (orjson.dumps(text)[1:-1] for text in (INSTRUCTIONS, FORMER_INSTRUCTIONS))
    earlier = orjson.loads(orjson.dumps(record).replace(now, then))
    assert earlier != record
    assert exported(read_record(earlier, name, "file:1"), name) == record
    assert (found.script.introduction, found.script.goal) == (one.script.introduction, one.script.goal)
    for action, before in zip(found.script.actions, one.script.actions, strict=True):
        assert (action.name, action.description) == (before.name, before.description)
        assert {name: values for name, values in before.parameters.items() if values} == action.parameters


@pytest.mark.parametrize("types", [{}, {"amount": ParameterType(type="integer", minimum=1, maximum=3)}])
def test_values_that_some_actions_share_are_told_apart_from_open_ones(types: dict[str, ParameterType]) -> None:
    listed = [
        ActionSpec(name=f"{verb} {{amount}}", pattern=f"{verb} (.+)", parameters={"amount": values}, types=types)
        for verb, values in (("pour", ()), ("boil", ("1", "2")), ("cool", ("1", "2")))
    ]
    kitchen = SHED.model_copy(update={"actions": tuple(listed)})
    played = trajectory(player("boil 1"), dm("It boils. Task Succeed"), script=kitchen)
    record = exported(played, "openai")
    assert read_record(record, "openai", "file:1").script.goal == played.script.goal


@pytest.mark.parametrize("name", ["agentinstruct", "openai"])
@given(ANY)
def test_whatever_was_played_comes_back_or_is_refused(name: str, one: Trajectory) -> None:
    records = list(export([one], name))
    try:
        found = [read_record(record, name, "file:1") for record in records]
    except InputError as error:
        assert str(error).startswith("file:1: ")  # noqa: PT017
        return
    assert list(export(found, name)) == records


@given(VALID)
def test_calls_come_back_as_the_text_that_they_say(one: Trajectory) -> None:
    assume(says_which_are_mistakes(one))
    found = read_record(exported(one, "openai", "tools"), "openai", "file:1")
    assert judged(found) == to_react(one.script, to_tool_messages(one))[: len(judged(one))]
    assert [action.name for action in found.script.actions] == [action.name for action in one.script.actions]


def test_an_action_that_is_none_has_the_wrong_form_and_any_other_mistake_makes_no_sense() -> None:
    played = trajectory(
        *(player("juggle"), dm("No.", "logic"), player("take key"), dm("There is none.", "place")),
        *(player("open box"), dm("It opens."), player("take key"), dm("Task Succeed")),
        script=SHED,
    )
    found = read_record(exported(played, "agentinstruct"), "agentinstruct", "file:1")
    kinds = [turn.mistake_kind for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
    assert kinds == ["parameter", "logic", None, None]


@pytest.mark.parametrize("name", ["agentinstruct", "openai"])
def test_one_of_several_records_of_a_conversation_is_refused(name: str) -> None:
    played = trajectory(
        *(player("juggle"), dm("No.", "logic"), player("open box"), dm("It opens.")),
        *(player("take key"), dm("Task Succeed")),
    )
    whole, *_ = split = list(export([played], name, masking="split"))
    assert len(split) == 2
    for record in split:
        with pytest.raises(InputError, match="only the last message is to be trained on"):
            read_record(record, name, "file:1")
    assert whole != exported(played, name)


def test_a_document_that_only_looks_like_ours_is_refused_in_words() -> None:
    document = exported(of_draft(Draft(script=SHED_GROUNDED, turns=(player("look"), dm("A box.")))), "atif")
    spoilt: list[dict[str, Any]] = [
        {**document, "steps": [1, 2]},
        {**document, "extra": {**document["extra"], "script": {}}},
        {**document, "steps": document["steps"][:1]},
        {**document, "session_id": None, "trajectory_id": None},
    ]
    for one in spoilt:
        with pytest.raises(InputError, match=r"^file:1: this is no document that refinesynth wrote"):
            read_record(one, "atif", "file:1")


def by_the_repairer(one: Trajectory, chosen: list[bool]) -> Trajectory:
    """The turns after mistakes, and further ones that are `chosen`, are the repairer's."""
    wrong, drawn = {at + 2 for at in one.mistakes()}, iter(chosen)
    turns = tuple(
        turn.model_copy(update={"by": "repairer"})
        if isinstance(turn, PlayerTurn) and (at in wrong or next(drawn, False))
        else turn
        for at, turn in enumerate(one.turns)
    )
    return one.model_copy(update={"turns": turns})


def labels(one: Trajectory) -> list[str]:
    return [message.label for message in to_messages(one) if message.role == "assistant"]


def trained_on(one: Trajectory) -> list[TurnLabel | None]:
    return [turn.label for turn in read_training_record(one, "file:1").turns if turn.role == "assistant"]


@pytest.mark.parametrize("name", ["agentinstruct", "paper", "atif"])
@given(VALID, st.lists(st.booleans()))
def test_labels_survive_an_export_and_an_import(name: str, one: Trajectory, chosen: list[bool]) -> None:
    taught = by_the_repairer(one, chosen)
    assert labels(Trajectory.from_json(taught.to_json())) == labels(taught)
    found = read_record(exported(taught, name), name, "file:1")
    assert labels(found) == labels(taught)
    assert trained_on(found) == trained_on(taught)


@pytest.mark.parametrize("name", ["agentinstruct", "llamafactory", "trl", "axolotl", "tinker", "slime", "ms-swift"])
@given(VALID, st.lists(st.booleans()))
def test_training_reads_the_labels_of_an_export(name: str, one: Trajectory, chosen: list[bool]) -> None:
    taught = by_the_repairer(one, chosen)
    record = exported(taught, name)
    read = read_training_record(record, "file:1")
    assert [turn.label for turn in read.turns if turn.role == "assistant"] == trained_on(taught)
    # Older exports for TRL, which takes `labels` as token labels, have that key too.
    assert ("labels" in record) == (name != "trl")
    assert read_training_record({**record, "labels": record.get("turn_labels", record.get("labels"))}, "file:1") == read
    # A run without a repairer is written as ever, and another meaning of the key is nobody's business.
    plain = {key: value for key, value in record.items() if key not in {"labels", "turn_labels"}}
    assert exported(one, name) == plain
    assert read_training_record({**plain, "labels": [0] * 3}, "file:1") == read_training_record(
        exported(one, name), "file:1"
    )


@given(VALID, st.lists(st.booleans()))
def test_the_loss_may_be_on_repairs_alone(one: Trajectory, chosen: list[bool]) -> None:
    read = read_training_record(by_the_repairer(one, chosen), "file:1")
    before = read_training_record(one, "file:1")
    assert read.trained() == before.trained()
    turns = read.turns
    for at, trained in enumerate(read.trained(LossOn.REPAIRS)):
        assert trained == (turns[at].label is TurnLabel.REFINEMENT)
        assert not (trained and read.trained(LossOn.NO_REFINEMENT_TURNS)[at])
