"""Pairs of a mistake and its repair: one context, both turns, and nothing in the better one that only the refusal could
have told."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from export_samples import a_trajectory, any_trajectories, of_draft
from hypothesis import given
from samples import dm, player

from refinesynth.actions.calls import Call
from refinesynth.chat import ToolMessage, render_player, render_tools, to_messages, to_react
from refinesynth.export import Masking, export, find_format, write_export
from refinesynth.export.chat_shapes import ExportRecord
from refinesynth.export.preferences import CHANGED, HINDSIGHT, NO_CONTEXT, SAME, UNREPAIRED
from refinesynth.rules.repairs import repairs
from refinesynth.rules.world_replay import replay_draft
from refinesynth.testing import valid_grounded_drafts
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Trajectory


def records(played: Trajectory) -> list[ExportRecord]:
    return list(find_format("preference").records(played, Masking.PAIR))


def chosen(*played: PlayerTurn | DungeonMasterTurn) -> str | None:
    """What is chosen instead of the first mistake; None if there is no pair for it."""
    first = records(a_trajectory(*played))[0]
    data: dict[str, Any] = first.data
    return None if first.omitted else data["chosen"][0]["content"]


def test_a_pair_has_what_came_before_the_mistake_with_earlier_mistakes_as_they_were() -> None:
    whole = [{"role": message.role, "content": message.content} for message in to_messages(a_trajectory())]
    first, second = export([a_trajectory()], "preference")
    better = [{"role": "assistant", "content": "Thought: I try this.\nAction: look"}]
    assert first == {"id": "000001-abc#1", "prompt": whole[:1], "chosen": better, "rejected": whole[1:2]}
    assert second == {"id": "000001-abc#2", "prompt": whole[:3], "chosen": better, "rejected": whole[3:4]}


@given(any_trajectories())
def test_pairs_in_calls_are_those_in_text(played: Trajectory) -> None:
    calls, texts = ([*find_format("preference", form).records(played, Masking.PAIR)] for form in ("tools", "react"))
    assert [one.omitted for one in calls] == [one.omitted for one in texts]
    for call, text in zip(calls, texts, strict=True):
        if call.omitted:
            continue
        said: dict[str, Any] = call.data
        assert said["tools"] == render_tools(played.script)
        messages = [ToolMessage(**_message(one)) for part in ("prompt", "chosen", "rejected") for one in said[part]]
        parts: dict[str, Any] = text.data
        told = [one["content"] for part in ("prompt", "chosen", "rejected") for one in parts[part]]
        # What a pattern takes beyond its template is the same action in the template's words.
        assert len(told) == len(messages)
        assert [one.content for one in to_react(played.script, messages) if one.role == "user"] == [
            said for said, one in zip(told, messages, strict=True) if one.role != "assistant"
        ]
        assert len({one.id for one in messages[-2:]}) == 1


def _message(one: dict[str, Any]) -> dict[str, Any]:
    (call, *_) = one.get("tool_calls", [None])
    read = Call(call["function"]["name"], call["function"]["arguments"]) if call else None
    number = call["id"] if call else one.get("tool_call_id", "")
    return {"role": one["role"], "content": one["content"], "loss": False, "id": number, "call": read}


@given(any_trajectories())
def test_each_mistake_gives_one_pair_or_one_reason(played: Trajectory) -> None:
    found = repairs(played.draft())
    assert len(found) == len(records(played))
    whole = [(message.role, message.content) for message in to_messages(played)]
    for repair, record in zip(found, records(played), strict=True):
        if record.omitted:
            assert record.omitted in {UNREPAIRED, CHANGED, HINDSIGHT, NO_CONTEXT, SAME}
            assert (record.omitted == UNREPAIRED) == (repair.answer is None)
            continue
        assert repair.answer is not None
        data: dict[str, Any] = record.data
        prompt, (better,), (worse,) = data["prompt"], data["chosen"], data["rejected"]
        told = [(message["role"], message["content"]) for message in prompt]
        assert told == whole[: len(told)]
        assert told[-1][0] == "user"
        assert worse["content"] == render_player(repair.mistake.player)
        answer = played.turns[repair.answer]
        assert isinstance(answer, PlayerTurn)
        thought, _, action = better["content"].rpartition("\nAction: ")
        assert action == answer.action.rpartition("\nAction: ")[2]
        assert set(thought.removeprefix("Thought: ").split()) <= {
            *f"{answer.thought} {answer.action}".split(),
            "Action:",
        }


@given(valid_grounded_drafts())
def test_in_an_executed_world_what_is_chosen_would_have_been_accepted_there(draft: Draft) -> None:
    played = of_draft(draft)
    for repair, record in zip(repairs(draft), records(played), strict=True):
        if record.omitted or repair.answer is None:
            continue
        turns = (*played.turns[: repair.mistake.turn], *played.turns[repair.answer : repair.answer + 2])
        replayed = replay_draft(Draft(script=draft.script, turns=turns, finished=False))
        assert replayed is not None
        assert replayed.exchanges[-1].ruling.kind is None


WRONG = (player("open drawer", "I open it."), dm("The drawer is locked with a padlock.", "logic"))


@pytest.mark.parametrize(
    ("thought", "kept"),
    [
        ("I look around first.", "I look around first."),
        ("That was a mistake. I look around first.", "I look around first."),
        ("It is locked. I look around first.", "I look around first."),
        ("The drawer is locked with a padlock. I look around first.", "I look around first."),
        ("There is a padlock. It needs a key. I look around first.", "I look around first."),
        ("I misjudged that.\nI look around first; then I see.", "I look around first; then I see."),
        ("", ""),
    ],
)
def test_sentences_that_only_a_refusal_could_have_told_are_taken_out(thought: str, kept: str) -> None:
    found = chosen(*WRONG, player("look", thought), dm("Task Succeed"))
    assert found == f"Thought: {kept}\nAction: look"


@pytest.mark.parametrize("thought", ["That failed, so I look around.", "Because of the padlock I look around."])
def test_a_thought_of_nothing_else_gives_no_pair(thought: str) -> None:
    assert [one.omitted for one in records(a_trajectory(*WRONG, player("look", thought), dm("Task Succeed")))] == [
        HINDSIGHT
    ]


def test_an_action_on_what_only_the_refusal_named_gives_no_pair() -> None:
    played = a_trajectory(*WRONG, player("inspect padlock", "I look closer."), dm("Task Succeed"))
    assert [one.omitted for one in records(played)] == [HINDSIGHT]
    known = a_trajectory(
        player("look"), dm("A padlock."), *WRONG, player("inspect padlock", "I look closer."), dm("Task Succeed")
    )
    assert [one.omitted for one in records(known)] == [""]


def test_every_refusal_on_the_way_counts() -> None:
    between = (player("pull drawer", "I pull."), dm("It does not give, there is a chain.", "logic"))
    played = a_trajectory(*WRONG, *between, player("look", "A chain. I look."), dm("Task Succeed"))
    assert [one.data["chosen"] for one in records(played)] == [
        [{"role": "assistant", "content": "Thought: I look.\nAction: look"}]
    ] * 2


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    unrepaired = a_trajectory(player("look"), dm("A mug."), *WRONG, id="9")
    hindsight = a_trajectory(*WRONG, player("look", "That failed."), dm("Task Succeed"), id="8")
    report = write_export([a_trajectory(), unrepaired, hindsight, unrepaired], tmp_path / "pairs.jsonl", "preference")
    assert (report.records, report.trained, report.masked, report.left_out) == (2, 2, 1, 3)
    assert report.masking is Masking.PAIR
    assert Counter(report.remarks) == {f"Left out, {UNREPAIRED}: 2.": 1, f"Left out, {HINDSIGHT}: 1.": 1}
    assert "`max_length=None`" in report.advice


def test_the_mistaken_action_itself_is_never_chosen() -> None:
    wrong = (player("take  key", "Now."), dm("You drop it.", "logic"))
    repair = player("take key", "I do it.").model_copy(update={"by": "repairer"})
    assert records(a_trajectory(*wrong, repair, dm("Task Succeed")))[0].omitted == SAME


def test_the_turn_of_the_repairer_is_chosen_also_where_the_answer_comes_later() -> None:
    """It was made in the very state of the mistake, and is the teacher's."""
    turns = (
        player("open box"),
        dm("It is locked.", "logic"),
        player("take key", "The key comes first."),
        dm("You hold a key.", "place"),
        player("look", "I look around."),
        dm("Task Succeed"),
    )
    taught = [turn.model_copy(update={"by": "repairer"}) if isinstance(turn, PlayerTurn) else turn for turn in turns]
    # What the repairer got wrong is never chosen.
    assert chosen(*turns[:2], *taught[2:]) == chosen(*turns) == render_player(turns[4])
    right = turns[3].model_copy(update={"place_error": False})
    assert chosen(*turns[:2], taught[2], right, *turns[4:]) == "Thought: The key comes first.\nAction: take key"
