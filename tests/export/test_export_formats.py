"""What a record of each format says, against the form that its trainer reads."""

from typing import Any

import orjson
import pytest
from export_samples import REFINED, SCRIPT, a_trajectory, any_trajectories
from hypothesis import given
from samples import dm, player

from refinesynth.chat import to_messages
from refinesynth.errors import InputError
from refinesynth.export import FORMATS, Masking, export
from refinesynth.trajectory import Draft, PlayerTurn, Script, Trajectory, read_turns

EVERY_WAY = [(name, masking) for name, form in FORMATS.items() for masking in form.advice]
NO_CHAT = ("paper", "atif")
"""Formats that hold whole trajectories, whether or not anything is to be trained on."""
WITH_FLAG = [name for name, form in FORMATS.items() if Masking.FLAG in form.advice and name not in NO_CHAT]


def records(form: str, *trajectories: Trajectory, masking: str | None = None) -> list[dict[str, Any]]:
    return list(export(trajectories or (a_trajectory(),), form, masking=masking))


def test_paper_is_read_back_as_what_it_was() -> None:
    (record,) = records("paper")
    assert record["persona"] == "a cook"
    assert Script.model_validate(orjson.loads(record["script"])) == SCRIPT
    assert Draft.from_text(SCRIPT, record["trajectory"]).turns == REFINED
    assert orjson.loads(record["trajectory"])[0] == {
        "turn": 1, "role": "Player", "Thought": "I try this.", "Action": "take moon",
    }  # fmt: skip
    assert "verification code" in orjson.loads(record["script"])["Available Actions"]["look"]


@pytest.mark.parametrize("form", [name for name in FORMATS if name not in NO_CHAT])
def test_a_trajectory_without_anything_to_train_on_gives_no_record(form: str) -> None:
    only_wrong = a_trajectory(player("take moon"), dm("No.", "logic"))
    only_seen = a_trajectory(dm("You wake up."))
    assert records(form, only_wrong, only_seen) == []
    assert [len(records(whole, only_wrong, only_seen)) for whole in NO_CHAT] == [2, 2]


def contents_and_flags(form: str, record: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Role, text and whether a trainer learns it, as the trainer of that format would read a record."""
    if form in ("trl-split", "preference"):
        messages = record["prompt"] + record["completion" if form == "trl-split" else "chosen"]
        return [(message["role"], message["content"], at == len(messages) - 1) for at, message in enumerate(messages)]
    if form == "sharegpt":
        messages = record["conversations"]
        role = {"human": "user", "gpt": "assistant"}
        return [(role[item["from"]], item["value"], at == len(messages) - 1) for at, item in enumerate(messages)]
    if form == "agentinstruct":
        role = {"human": "user", "gpt": "assistant"}
        return [(role[item["from"]], item["value"], item["loss"]) for item in record["conversations"]]
    if form == "llamafactory":
        return [
            (item["role"], "".join(part["value"] for part in item["content"]), item["loss_weight"] > 0)
            for item in record["messages"]
        ]
    if form == "prime-rl":
        return [(item["role"], item["content"], item["role"] == "assistant") for item in record["messages"]]
    keys = {"openai": "weight", "axolotl": "training", "tinker": "trainable", "slime": "step_loss_mask"}
    key = keys.get(form, "loss")
    return [(item["role"], item["content"], bool(item.get(key))) for item in record["messages"]]


@given(any_trajectories())
def test_flagged_formats_train_on_exactly_what_the_rendering_says(played: Trajectory) -> None:
    rendered = list(to_messages(played))
    while rendered and rendered[-1].role == "user":
        rendered.pop()
    expected = [(message.role, message.content, message.loss) for message in rendered]
    for form in WITH_FLAG:
        written = [contents_and_flags(form, record) for record in records(form, played)]
        assert written == ([expected] if any(loss for _, _, loss in expected) else [])


@given(any_trajectories())
def test_split_records_together_train_on_exactly_what_the_rendering_says(played: Trajectory) -> None:
    learned = [message.content for message in to_messages(played) if message.loss]
    for form in (name for name, masking in EVERY_WAY if masking is Masking.SPLIT):
        trained: list[str] = []
        for record in records(form, played, masking="split"):
            messages = contents_and_flags(form, record)
            assert [flag for _, _, flag in messages] == [False] * (len(messages) - 1) + [True]
            trained.append(messages[-1][1])
        assert trained == learned


@given(any_trajectories())
def test_dropping_leaves_no_mistake_and_loses_nothing_right(played: Trajectory) -> None:
    learned = [message.content for message in to_messages(played) if message.loss]
    for form in (name for name, masking in EVERY_WAY if masking is Masking.DROP and name != "sharegpt"):
        for record in records(form, played, masking="drop"):
            messages = contents_and_flags(form, record)
            assert [content for role, content, _ in messages if role == "assistant"] == learned
            assert all(flag for role, _, flag in messages if role == "assistant")


@given(any_trajectories())
def test_every_chat_record_alternates_from_user_to_assistant(played: Trajectory) -> None:
    for form, masking in EVERY_WAY:
        if form in NO_CHAT:
            continue
        for record in records(form, played, masking=masking):
            roles = [role for role, _, _ in contents_and_flags(form, record)]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
            assert roles


@given(any_trajectories())
def test_counts_say_what_a_record_trains(played: Trajectory) -> None:
    for form, masking in EVERY_WAY:
        for record in FORMATS[form].records(played, masking):
            if record.omitted:
                assert (record.data, record.trained, record.masked) == ({}, 0, 0)
            elif form in NO_CHAT:
                spoken = sum(isinstance(turn, PlayerTurn) for turn in played.turns)
                assert (record.trained, record.masked) == (spoken - len(played.mistakes()), len(played.mistakes()))
                if form == "paper":
                    assert read_turns(orjson.loads(str(record.data["trajectory"]))) == played.turns
            else:
                flags = [flag for role, _, flag in contents_and_flags(form, record.data) if role == "assistant"]
                if not (form == "sharegpt" and masking is Masking.DROP):
                    assert (record.trained, record.masked) == (sum(flags), len(flags) - sum(flags))


def test_an_unknown_format_is_refused_before_anything_is_read() -> None:
    def never() -> Any:
        raise AssertionError
        yield

    with pytest.raises(InputError, match=r"did you mean 'sharegpt'.*axolotl"):
        export(never(), "sharegtp")
    with pytest.raises(InputError, match="Choose one of: sharegpt, llamafactory, openai"):
        export(never(), "parquet")
    with pytest.raises(InputError, match="can do 'split' or 'drop'"):
        export(never(), "sharegpt", masking="whole")
