"""Conversations out of every form that we export, from files, folders, datasets and objects; and what is refused, with
its line."""

import gzip
import json
from pathlib import Path
from typing import Any, cast

import datasets
import pytest
import tiny
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import accepted, provenance

from refinesynth import testing
from refinesynth.errors import InputError
from refinesynth.export.chat_shapes import Masking
from refinesynth.export.formats import FORMATS
from refinesynth.imports import read_record as import_record
from refinesynth.train.data import read_conversations, read_record, split
from refinesynth.train.labelled_conversation import Conversation, LossOn, Turn, TurnLabel
from refinesynth.trajectory import Draft, Trajectory


def trajectory(draft: Draft, name: str = "t-1", persona: str = "A cook.") -> Trajectory:
    return accepted(draft, id=name, persona=persona)


def sample(name: str = "t-1") -> Trajectory:
    script = {
        "environment": {"room": ["mug"]},
        "goal": "Bring the mug.",
        "completion_conditions": ["it is there"],
        "actions": [{"name": "take {item}", "pattern": "take (.+)", "parameters": {"item": ["mug"]}}],
    }
    flags = {"parameter_error": False, "place_error": False, "logic_error": False}
    turns: list[dict[str, Any]] = []
    for action, wrong in (("take it", True), ("take mug", False), ("leap", True), ("take mug", False)):
        turns.append({"role": "Player", "thought": f"I {action}.", "action": action})
        turns.append({"role": "DM", "thought": "", "observation": f"After {action}.", **flags, "logic_error": wrong})
    return Trajectory.model_validate(
        {
            "id": name,
            "persona": {"text": "A cook."},
            "script": script,
            "turns": turns,
            "provenance": provenance().model_dump(),
        }
    )


def table_of(records: list[Any]) -> Any:
    return cast("Any", datasets.Dataset).from_list(records)


def without_closing(one: Conversation) -> tuple[Turn, ...]:
    return one.turns[:-1] if one.turns[-1].role == "user" else one.turns


FLAGGED = [name for name, form in FORMATS.items() if Masking.FLAG in form.advice and name != "atif"]
SPLIT = [name for name, form in FORMATS.items() if Masking.SPLIT in form.advice]


@given(st.sampled_from(FLAGGED), testing.valid_drafts())
def test_an_export_with_flags_reads_as_its_trajectory_does(name: str, draft: Draft) -> None:
    whole = read_record(trajectory(draft), "t:1")
    # Without an id, a record that trains on its last turn alone reads as a split one.
    assume(name != "openai" or sum(whole.trained()) > 1)
    (record,) = FORMATS[name].records(trajectory(draft), Masking.FLAG)
    assert without_closing(read_record(record.data, "x:1")) == without_closing(whole)


@given(st.sampled_from(SPLIT), testing.valid_drafts())
def test_a_split_export_trains_on_each_right_turn_once(name: str, draft: Draft) -> None:
    whole = read_record(trajectory(draft), "t:1")
    records = [
        read_record(record.data, f"x:{k}")
        for k, record in enumerate(FORMATS[name].records(trajectory(draft), Masking.SPLIT))
    ]
    right = [at for at, train in enumerate(whole.trained()) if train]
    assert [len(record.turns) - 1 for record in records] == right
    assert len({record.group for record in records}) == 1
    for record in records:
        assert [turn[:2] for turn in record.turns] == [turn[:2] for turn in whole.turns[: len(record.turns)]]
        assert record.turns[-1].label in {TurnLabel.CORRECT, TurnLabel.REFINEMENT}
        earlier = {turn.label for turn in record.turns[:-1] if turn.role == "assistant"}
        # A record with an id that trains on an only turn may still be a whole conversation; it says so by its flags.
        assert earlier <= {TurnLabel.HISTORY}


DROPPED = [name for name, form in FORMATS.items() if Masking.DROP in form.advice]


@given(st.sampled_from(DROPPED), testing.valid_drafts())
def test_an_export_without_mistakes_trains_on_every_turn_that_is_left(name: str, draft: Draft) -> None:
    for record in FORMATS[name].records(trajectory(draft), Masking.DROP):
        read = read_record(record.data, "x:1")
        (left,) = read_conversations([[trajectory(draft)]], without_refinement=True)
        spoken = [turn for turn in read.turns if turn.role == "assistant"]
        assert read.turns == without_closing(left)
        assert all(turn.label is TurnLabel.CORRECT for turn in spoken)
        assert len(spoken) == record.trained
        assert name == "openai" or read.group == "record t-1"


def test_a_turn_of_which_a_part_alone_is_trained_is_refused() -> None:
    (record,) = FORMATS["axolotl"].records(sample(), Masking.FLAG)
    messages: Any = record.data["messages"]
    messages[3]["content"] = [{"type": "text", "text": messages[3]["content"], "train": False}]
    with pytest.raises(InputError, match=r"x:1: a part of message 4 is not to be trained on .* another format"):
        read_record(record.data, "x:1")


FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask")


def masked_chat(**flags: Any) -> dict[str, Any]:
    """A wrong turn, `flags` of it, and a right turn."""
    right = {key: 1 for key in flags if key in FLAGS}
    texts = [
        ("user", "Find the mug."),
        ("assistant", "Action: opne"),
        ("user", "Error."),
        ("assistant", "Action: open"),
    ]
    said = [
        {"role": who, "content": text, **extra}
        for (who, text), extra in zip(texts, ({}, flags, {}, right), strict=True)
    ]
    return {"id": "x", "messages": said}


@pytest.mark.parametrize("key", FLAGS)
def test_each_flag_masks_its_turn_whoever_else_has_it(key: str) -> None:
    record = masked_chat(**{key: 0})
    for message in record["messages"][::2]:
        message[key] = 0
    read = read_record(record, "x:1")
    assert read.marked
    assert read.trained() == (False, False, False, True)


@pytest.mark.parametrize(
    "record",
    [
        masked_chat(mask=True),
        masked_chat(loss_mask=0),
        masked_chat(train_detail=[{"begin_offset": 0, "end_offset": 3, "train": False}]),
        masked_chat() | {"message_loss_mask": [0, 0, 0, 1]},
    ],
)
def test_a_mask_that_is_not_read_is_refused(record: dict[str, Any]) -> None:
    refused = r"x:1: `\w+` of .* is not read; replace it by a boolean `loss`"
    with pytest.raises(InputError, match=refused):
        read_record(record, "x:1")
    with pytest.raises(InputError, match=refused):
        import_record(record, "openai", "x:1")


def released(*messages: tuple[str, str, bool | None], name: str | None = "alfworld_1") -> dict[str, Any]:
    """A record as the authors of AgentInstruct and AgentRefine released theirs."""
    said = [{"from": who, "value": value, "loss": loss} for who, value, loss in messages]
    return {"id": name, "conversations": said}


HOW = ("human", "Interact with the house. Answer with Thought and Action.", None)
OK = ("gpt", "OK. I'll follow your instructions and try my best to solve the task.", False)
TASK = ("human", "You are in a hall. Your task is to find a mug.", None)
FIRST = ("gpt", "Thought: I look.\nAction: look", True)
WRONG = ("gpt", "Thought: up there.\nAction: fly", False)
NO = ("human", "Nothing happens.", False)


class TestTheReleasedForm:
    def test_its_ok_is_context_and_no_mistake(self) -> None:
        read = read_record(released(HOW, OK, TASK, FIRST, TASK, WRONG, NO, FIRST), "x:1")
        spoken = [turn.label for turn in read.turns if turn.role == "assistant"]
        assert spoken == [TurnLabel.PREAMBLE, TurnLabel.CORRECT, TurnLabel.MISTAKE, TurnLabel.REFINEMENT]
        for loss_on in LossOn:
            assert not read.trained(loss_on)[1]
        assert read.trained() == (False, False, False, True, False, False, False, True)
        assert read.trained(LossOn.NO_REFINEMENT_TURNS)[3]

    @pytest.mark.parametrize("said", ["OK", "I've understood your instruction, start please.", "好的。"])
    def test_its_words_do_not_matter(self, said: str) -> None:
        for opening in ([HOW, ("gpt", said, False)], [HOW, ("gpt", said, False)] * 2):
            read = read_record(released(*opening, TASK, WRONG, NO, FIRST), "x:1")
            labels = [turn.label for turn in read.turns[1::2]]
            wrong, right = TurnLabel.MISTAKE, TurnLabel.REFINEMENT
            assert labels == [TurnLabel.PREAMBLE] * (len(opening) // 2) + [wrong, right]
            (left,) = read_conversations([[released(*opening, TASK, WRONG, NO, FIRST)]], without_refinement=True)
            assert TASK[1] in [turn.content for turn in left.turns]

    @pytest.mark.parametrize("said", ["OK. I fly.\nAction: fly", "Thought: ok\nAction: fly", "**Action:** fly"])
    def test_what_acts_is_a_mistake(self, said: str) -> None:
        read = read_record(released(HOW, ("gpt", said, False), NO, FIRST), "x:1")
        assert [turn.label for turn in read.turns[1::2]] == [TurnLabel.MISTAKE, TurnLabel.REFINEMENT]

    def test_only_before_the_first_attempt_and_only_if_not_trained_on(self) -> None:
        late = read_record(released(TASK, FIRST, NO, OK, NO, FIRST), "x:1")
        assert late.turns[3].label is TurnLabel.MISTAKE
        trained = read_record(released(HOW, ("gpt", "OK", True), TASK, FIRST), "x:1")
        assert trained.turns[1].label is TurnLabel.CORRECT

    def test_without_refinement_the_task_stays(self) -> None:
        (left,) = read_conversations([[released(HOW, OK, TASK, WRONG, NO, FIRST)]], without_refinement=True)
        assert [turn.content for turn in left.turns] == [HOW[1], OK[1], TASK[1], FIRST[1]]
        reading = read_conversations([[released(HOW, OK, TASK, WRONG)]], without_refinement=True)
        assert list(reading) == []
        assert reading.emptied == 1

    def test_one_instruction_for_all_tasks_does_not_make_them_one_group(self) -> None:
        tasks = [("human", f"Find mug {number}.", None) for number in range(10)]
        named = [released(HOW, OK, task, FIRST, name=f"t{k}") for k, task in enumerate(tasks)]
        nameless = [released(HOW, OK, task, FIRST, name=None) for task in tasks]
        for records in (named, nameless):
            train, held_out = split(read_conversations([records]), 0.2)
            assert (len(train), len(held_out)) == (8, 2)
        twice = [released(HOW, OK, tasks[0], FIRST, name=name) for name in ("a", "b")]
        with pytest.raises(InputError, match="1 of 1 groups"):
            split(read_conversations([twice]), 1)


@given(draft=testing.valid_drafts())
def test_without_refinement_roles_still_alternate_and_nothing_is_a_mistake(draft: Draft) -> None:
    for left in read_conversations([[trajectory(draft)]], without_refinement=True):
        roles = [turn.role for turn in left.turns]
        assert roles == [("user", "assistant")[k % 2] for k in range(len(roles))]
        assert {turn.label for turn in left.turns} <= {None, TurnLabel.CORRECT}


def test_mistakes_that_are_not_known_cannot_be_taken_out() -> None:
    with pytest.raises(InputError, match=r"talk.jsonl:1: .*so they cannot be taken out"):
        list(read_conversations([[tiny.talk("hc")]], without_refinement=True))


def lines(*items: object) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def run(folder: Path, *extra: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    data = b"".join(sample(f"t-{k}").to_json() + b"\n" for k in range(3))
    (folder / "trajectories.jsonl").write_bytes(data + b"".join(extra))
    return folder


def test_a_run_folder_and_its_file_read_alike_and_compressed_too(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    data = (folder / "trajectories.jsonl").read_bytes()
    (tmp_path / "a.jsonl.GZ").write_bytes(gzip.compress(data))
    expected = [(one.id, one.turns) for one in read_conversations(folder)]
    assert [name for name, _ in expected] == ["t-0", "t-1", "t-2"]
    for source in ("run/trajectories.jsonl", "a.jsonl.GZ"):
        assert [(one.id, one.turns) for one in read_conversations([tmp_path / source])] == expected
    assert [one.location for one in read_conversations([str(folder)])][-1] == f"{folder}/trajectories.jsonl:3"


@pytest.mark.parametrize("name", ["cut.jsonl.gz", "plain.jsonl.gz"])
def test_a_damaged_archive_is_an_input_error(tmp_path: Path, name: str) -> None:
    data = lines(*({"id": str(k), "messages": [{"x": "y" * k}]} for k in range(3)))
    packed = gzip.compress(data)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2] if name.startswith("cut") else b"no archive")
    with pytest.raises(InputError):
        list(read_conversations([tmp_path / name]))


def test_sources_that_are_nothing_are_refused(tmp_path: Path) -> None:
    wrong: Any = 5
    for source, problem in (
        (tmp_path / "nowhere.jsonl", "there is no file or folder"),
        ("no such thing", "there is no file or folder"),
        (wrong, "source 1 is int"),
    ):
        with pytest.raises(InputError, match=problem):
            list(read_conversations([source]))


@pytest.mark.parametrize("name", FLAGGED)
def test_a_dataset_reads_as_the_file_does(tmp_path: Path, name: str) -> None:
    records = [record.data for k in range(2) for record in FORMATS[name].records(sample(f"t-{k}"), Masking.FLAG)]
    table = table_of(records)
    table.to_json(tmp_path / "saved.jsonl")
    expected = [one.turns for one in read_conversations([records])]
    for source in (table, tmp_path / "saved.jsonl"):
        assert [one.turns for one in read_conversations([source])] == expected


def test_a_dataset_of_several_splits_is_refused() -> None:
    with pytest.raises(InputError, match="expected a path, one split of a dataset"):
        list(read_conversations([datasets.DatasetDict({"train": table_of([{"id": "x"}])})]))


U, A = {"role": "user", "content": "Go."}, {"role": "assistant", "content": "Gone.", "loss": True}


def chat(*messages: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"id": "x", "messages": list(messages), **extra}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (chat(A, U), r"message 1 is from 'assistant' where one from 'user' is expected"),
        (chat(U, U, A), r"message 2 is from 'user' where one from 'assistant' is expected"),
        (chat(U, A, {"role": "tool", "content": "x"}), r"message 3 is from 'tool'"),
        (chat({**U, "content": " \n"}, A), r"message 1 \(user\) is empty"),
        (chat(U), "there is no assistant message"),
        (chat({**U, "loss": True}, A), "marked for training"),
        (chat(U, A, U, {"role": "assistant", "content": "Gone."}), "only some of the assistant's messages"),
        (chat(U, {"role": "assistant", "content": ""}), r"message 2 \(assistant\) is empty"),
        (chat(U, {**A, "loss": 0.5}), "expected true or false"),
        (chat(U, {**A, "weight": 0}), "says both"),
        (chat(U, {"role": "assistant", "loss": True}), "text content"),
        ({"id": "x", "messages": ["hello"]}, "message 1 is str"),
        ({"prompt": [U], "completion": [A, U]}, "holds 2 messages"),
        ({"prompt": [U], "completion": [U]}, "not an assistant's"),
        ({"text": "Go."}, r"keys \['text'\] is of no form"),
        ({"script": "{oops", "trajectory": "[]"}, "cannot be read"),
        ({"script": {}, "turns": []}, "this is no trajectory"),
    ],
)
def test_a_record_that_is_not_sound_is_refused_with_its_line(tmp_path: Path, record: object, problem: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(lines(chat(U, A), record))
    with pytest.raises(InputError, match=rf"(?s)data.jsonl:2: .*({problem})"):
        list(read_conversations([path]))


def test_a_paper_record_with_a_bad_turn_is_refused() -> None:
    (record,) = FORMATS["paper"].records(sample(), Masking.FLAG)
    bad = {**record.data, "trajectory": json.dumps([{"role": "Player", "Thought": "x"}])}
    with pytest.raises(InputError, match="x:1: turn 1 of the trajectory cannot be read"):
        read_record(bad, "x:1")
    assert read_record({**record.data, "persona": None, "id": 7}, "x:1").id == "7"


def test_a_system_message_is_read_beside_or_among_the_others() -> None:
    among = read_record(chat({"role": "system", "content": "Be brief."}, U, A), "x:1")
    beside = read_record(chat(U, A, system="Be brief."), "x:1")
    assert among.turns == beside.turns
    assert among.turns[0] == Turn("system", "Be brief.", None)


KEYS = (
    "id messages conversations role from content value loss script turns prompt completion trajectory type text system"
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS.split()),
                inner | st.sampled_from(["user", "assistant", "human", "gpt", "text"]),
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_conversation_or_an_input_error(record: object) -> None:
    said = ""
    try:
        assert read_record(record, "x:1").turns
    except InputError as error:
        said = str(error)
    assert not said or said.startswith("x:1: ")


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(chat(U, A), chat(U, A)))
    assert len(list(read_conversations([path]))) == 2


NO_JSON = r"data.jsonl:1: this line is not JSON"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(chat(U, A)).encode("utf-16"), r"data.jsonl' cannot be read: it is UTF-16; expected UTF-8"),
        (b"no data", NO_JSON),
        (b'{"id": "x", "mess', NO_JSON),
    ],
)
def test_a_file_without_one_whole_record_is_refused_rather_than_taken_for_torn(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "data.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_conversations([tmp_path / "data.jsonl"]))


def test_a_line_that_would_fill_the_memory_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    talk = chat({"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"})
    path.write_bytes(gzip.compress(lines(talk, {"a": "x" * 40_000_000})))
    with pytest.raises(InputError, match=r"a\.jsonl\.gz:2: this line is longer than 16,777,216 bytes"):
        list(read_conversations([path]))
