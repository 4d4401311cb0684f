"""A run as a dataset: the splits and the card in a folder, and what a stand-in of the Hub is sent."""

import json
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import yaml
from command_line import cli
from jsonschema import Draft202012Validator
from samples import in_messages, trajectory

import refinesynth as rs
from refinesynth.errors import InputError
from refinesynth.export import export
from refinesynth.export.publishing import check_repo, row_schema, write_dataset, write_splits, write_traces

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra publish")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra publish")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"

    anyio.run(partial(rs.synthesize, n=16, backend="rehearsal", output=folder, seed=2))
    return folder


def rows(folder: Path, split: str) -> list[Any]:
    return [
        row for path in sorted(folder.glob(f"data/{split}-*.parquet")) for row in parquet.read_table(path).to_pylist()
    ]


def test_the_splits_hold_every_record_once_and_the_card_names_them(run: Path, tmp_path: Path) -> None:
    reports = write_dataset(run, tmp_path / "made", "me/first", licence="mit", held_out=0.4)
    train, test = rows(tmp_path / "made", "train"), rows(tmp_path / "made", "test")
    assert (len(train), len(test)) == (reports["train"].records, reports["test"].records)
    assert train
    assert test
    every = {json.dumps(record["messages"]) for record in export(run, "openai")}
    written = [
        json.dumps([{k: v for k, v in message.items() if v is not None} for message in row["messages"]])
        for row in [*train, *test]
    ]
    assert sorted(written) == sorted(every)
    _, head, body = (tmp_path / "made" / "README.md").read_text().split("---\n", 2)
    facts = yaml.safe_load(head)
    assert facts["license"] == "mit"
    assert 'load_dataset("me/first")' in body


@pytest.mark.parametrize("name", ["openai", "sharegpt", "preference", "paper"])
def test_the_schema_describes_each_row_as_it_is_read(run: Path, tmp_path: Path, name: str) -> None:
    write_dataset(run, tmp_path, "me/first", licence="mit", format=name, held_out=0.4)
    check: Any = Draft202012Validator(json.loads((tmp_path / "schema.json").read_text()))
    check.check_schema(check.schema)
    for row in [*rows(tmp_path, "train"), *rows(tmp_path, "test")]:
        check.validate(row)
        for key in row:
            assert not check.is_valid(row | {key: {"other": 1}})
        assert not check.is_valid(row | {"unknown": 1})


def test_the_schema_of_numbers_truths_and_nothing(tmp_path: Path) -> None:
    columns = {"ids": [1, 2], "weight": 0.5, "last": True, "none": None, "empty": []}
    parquet.write_table(pyarrow.Table.from_pylist([columns]), tmp_path / "one.parquet")
    check: Any = Draft202012Validator(row_schema([tmp_path / "one.parquet"]))
    assert check.is_valid(columns)
    for key, wrong in {"ids": [0.5], "weight": "0.5", "last": 1, "none": 1, "empty": ["one"]}.items():
        assert not check.is_valid(columns | {key: wrong})


def test_traces_are_sessions_as_the_hub_documents_them(run: Path, tmp_path: Path) -> None:
    reports = write_dataset(run, tmp_path / "made", "me/first", licence="mit", format="traces", held_out=0.4)
    trajectories = {trajectory.id: trajectory for trajectory in rs.SynthesisResult.open(run)}
    files = sorted((tmp_path / "made" / "traces").rglob("*.jsonl"))
    assert len(files) == len(trajectories) == sum(report.records for report in reports.values())
    for file in files:
        header, *lines = map(json.loads, file.read_text().splitlines())
        trajectory = trajectories[header["id"]]
        assert (header["type"], header["harness"], header["name"]) == ("session", "refinesynth", trajectory.script.goal)
        assert {line["type"] for line in lines} == {"message"}
        messages = [line["message"] for line in lines]
        known = {"role", "content", "reasoningContent", "toolCalls", "toolCallId"}
        assert all({"role", "content"} <= message.keys() <= known for message in messages)
        players = [turn for turn in trajectory.turns if turn.role == "Player"]
        spoken = [message for message in messages if message["role"] == "assistant"]
        assert [message.get("reasoningContent", message["content"]) for message in spoken] == [
            turn.thought for turn in players
        ]
        assert len(header["mistakes"]) == len(trajectory.mistakes())
        assert all(messages[at]["role"] == "assistant" for at in header["mistakes"])
        calls = [call["id"] for message in messages for call in message.get("toolCalls", ())]
        assert [message["toolCallId"] for message in messages if message["role"] == "tool"] == calls
        assert all(isinstance(call["function"]["arguments"], str) for m in spoken for call in m.get("toolCalls", ()))
    _, head, _ = (tmp_path / "made" / "README.md").read_text().split("---\n", 2)
    facts = yaml.safe_load(head)
    assert "agent-traces" in facts["tags"]
    assert [one["path"] for one in facts["configs"][0]["data_files"]] == ["traces/train/*.jsonl", "traces/test/*.jsonl"]
    with pytest.raises(InputError, match="masking"):
        write_dataset(run, tmp_path / "again", "me/first", licence="mit", format="traces", masking="drop")


def test_a_trace_names_a_message_in_which_a_further_call_is_the_mistake(tmp_path: Path) -> None:
    report = write_traces([in_messages(trajectory(), [False, True])], tmp_path, "train")
    header, *lines = map(json.loads, (tmp_path / "traces" / "train" / "000001.jsonl").read_text().splitlines())
    assert header["mistakes"] == [1, 3]
    assert len(lines[3]["message"]["toolCalls"]) == 2
    assert (report.trained, report.masked) == (2, 2)


def test_many_rows_are_several_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.export.publishing.SHARD", 3)
    records = tmp_path / "records.jsonl"
    records.write_text("".join(f'{{"at": {at}, "text": "x\\u00e9"}}\n' for at in range(8)))
    paths = write_splits({"train": records}, tmp_path)
    assert [path.name for path in paths] == [f"train-{at:05d}-of-00003.parquet" for at in range(3)]
    assert [row["at"] for row in rows(tmp_path, "train")] == list(range(8))


@pytest.mark.parametrize("shard", [1, 10])
def test_columns_that_begin_later_are_in_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int) -> None:
    monkeypatch.setattr("refinesynth.export.publishing.SHARD", shard)
    records = tmp_path / "records.jsonl"
    records.write_text('{"m": [{"a": 1}], "n": null}\n{"m": [{"b": "x"}], "n": [2]}\n{"m": [], "o": {"p": true}}\n')
    paths = write_splits({"train": records}, tmp_path)
    assert len({str(parquet.read_schema(path)) for path in paths}) == 1
    assert rows(tmp_path, "train") == [
        {"m": [{"a": 1, "b": None}], "n": None, "o": None},
        {"m": [{"a": None, "b": "x"}], "n": [2], "o": None},
        {"m": [], "n": None, "o": {"p": True}},
    ]


def test_the_splits_have_the_same_nested_columns(tmp_path: Path) -> None:
    records = {split: tmp_path / f"{split}.jsonl" for split in ("train", "test")}
    records["train"].write_text('{"m": {"a": 1}}\n')
    records["test"].write_text('{"m": {"b": 0.5}, "n": 1}\n')
    assert len({str(parquet.read_schema(path)) for path in write_splits(records, tmp_path)}) == 1
    assert rows(tmp_path, "test") == [{"m": {"a": None, "b": 0.5}, "n": 1}]


def test_objects_without_a_field_are_refused(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": 1, "m": {}}\n')
    with pytest.raises(InputError, match="without a field"):
        write_splits({"train": records}, tmp_path)


@pytest.mark.parametrize(("second", "shard"), [('"text"', 1), ('"text"', 10), (1.5, 1)])
def test_what_no_table_can_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: object, shard: int
) -> None:
    monkeypatch.setattr("refinesynth.export.publishing.SHARD", shard)
    records = tmp_path / "records.jsonl"
    records.write_text(f'{{"a": {2**60 + 1}}}\n{{"a": {second}}}\n')
    with pytest.raises(InputError, match="several types"):
        write_splits({"train": records}, tmp_path)


@pytest.mark.parametrize("name", ["data", "me/", "me/data/more", "me/dätä", "../x/y"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="OWNER/NAME"):
        check_repo(name)


def test_nothing_is_sent_in_a_dry_run_or_without_a_key(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    asked = [str(run), "me/first", "--license", "mit"]
    dry = cli("publish", *asked, "--dry-run", "-o", tmp_path / "made")
    assert dry.exit_code == 0, dry.output
    assert "nothing was sent" in dry.stdout
    assert (tmp_path / "made" / "README.md").is_file()
    for arguments, said in (
        (asked, "no key"),
        ([*asked, "--dry-run", "-o", str(tmp_path / "made")], "not an empty folder"),
        ([*asked[:2], "--license", "of my own"], "licence identifier"),
        ([*asked, "--dry-run", "--format", "sung"], "sung"),
    ):
        result = cli("publish", *arguments)
        assert (result.exit_code, said in result.stderr.replace("\n", " ")) == (2, True), result.stderr


class Hub:
    """A stand-in of `huggingface_hub.HfApi` that keeps what it is sent."""

    def __init__(self, *, private: bool) -> None:
        self.endpoint, self.private = "https://hub.invalid", private
        self.created: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}

    def create_repo(self, repo: str, **options: Any) -> None:
        self.created = {"repo": repo, **options}

    def repo_info(self, repo: str, *, repo_type: str) -> Any:
        assert (repo, repo_type) == ("me/first", "dataset")
        return SimpleNamespace(private=self.private)

    def upload_folder(self, *, folder_path: str, **options: Any) -> None:
        files = {str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*.*")}
        self.sent = {**options, "files": files}


@pytest.fixture
def hub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(private=request.param)

    def api(*, library_name: str) -> Hub:
        assert library_name == "refinesynth"
        return made

    monkeypatch.setattr("huggingface_hub.HfApi", api)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")
    return made


@pytest.mark.parametrize("hub", [True], indirect=True)
def test_the_hub_gets_the_files_in_a_private_dataset(hub: Hub, run: Path, tmp_path: Path) -> None:
    done = cli("publish", run, "me/first", "--license", "mit", "-o", tmp_path / "made")
    assert done.exit_code == 0, done.output
    assert f"{hub.endpoint}/datasets/me/first" in done.stdout
    assert hub.created == {"repo": "me/first", "repo_type": "dataset", "private": True, "exist_ok": True}
    assert hub.sent["files"] == {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.*")}
    assert (hub.sent["repo_id"], hub.sent["repo_type"]) == ("me/first", "dataset")
    names = ["data/train-00003-of-00004.parquet", "data/test-00000-of-00001.parquet", "traces/train/000001.jsonl"]
    deleted = [any(fnmatch(name, pattern) for pattern in hub.sent["delete_patterns"]) for name in names]
    assert deleted == [True] * 3
    assert not any(fnmatch(name, one) for name in ("data/own.parquet", "own.md") for one in hub.sent["delete_patterns"])


@pytest.mark.parametrize("hub", [False], indirect=True)
def test_nothing_is_sent_to_a_public_dataset_unless_that_is_asked_for(hub: Hub, run: Path) -> None:
    asked = ["publish", run, "me/first", "--license", "mit"]
    refused = cli(*asked)
    assert (refused.exit_code, "is public" in refused.stderr, hub.sent) == (2, True, {})
    assert cli(*asked, "--public").exit_code == 0
    assert hub.created["private"] is False
    assert hub.sent


@pytest.mark.parametrize("hub", [True], indirect=True)
def test_a_hub_that_cannot_be_reached_is_said(hub: Hub, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "create_repo", refuse)
    done = cli("publish", run, "me/first", "--license", "mit")
    assert (done.exit_code, "did not take 'me/first'" in done.stderr.replace("\n", " ")) == (3, True)
    assert "hf_secret" not in done.stderr
