"""`refinesynth export`, in process. What the records hold is tested with refinesynth.export."""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from cli_records import a_trajectory, write_run
from command_line import cli, unwrapped


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.csv.gz", "out.PARQUET", "out.jsonl.zst"])
def test_a_name_that_promises_another_form_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    refused = export(run, "--format", "openai", "-o", tmp_path / name)
    assert refused.exit_code == 2
    assert "JSONL is written, not ." in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two trajectories."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert cli("run", "-n", "2", "-o", folder).exit_code == 0
    return folder


export = partial(cli, "export")


def test_it_says_what_was_written_and_what_to_set(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = export(run, "--format", "openai", "-o", out)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{out}: 2 records of 2 trajectories, as openai with masking flag; ")
    assert "`weight` 0 keeps" in result.stdout
    assert [set(orjson.loads(line)) for line in out.read_bytes().splitlines()] == [{"messages"}, {"messages"}]


def test_a_file_is_not_replaced_unless_asked(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious", encoding="utf-8")
    refused = export(run, "--format", "trl", "-o", out)
    assert (refused.exit_code, "exists already" in refused.stderr) == (2, True)
    assert out.read_text(encoding="utf-8") == "precious"
    assert export(run, "--format", "trl", "-o", out, "--overwrite").exit_code == 0
    assert len(out.read_bytes().splitlines()) == 2


def test_compressed_trajectories_are_read_wherever_a_file_of_them_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (run / "trajectories.jsonl").read_bytes()
    source, data = Path("gz.jsonl.gz"), gzip.compress(lines)
    source.write_bytes(data)
    result = export(source, "--format", "trl")
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "gz.trl.jsonl"), result.output
    assert "cannot be read" not in cli("verify", source).output
    assert cli("show", source).exit_code == 0
    source.write_bytes(data[: len(data) // 2])
    commands: list[tuple[object, ...]] = [("verify", source), ("show", source)]
    commands += [
        ("export", source, "--format", "trl", "--overwrite"),
        ("evaluate", "--tasks", f"worlds:{source}", "--model", "oracle"),
    ]
    for command in commands:
        cut = cli(*command)
        assert (cut.exit_code, f"{str(source)!r} cannot be read" in cut.stderr) == (2, True), cut.output


def test_a_file_without_a_trajectory_is_refused_with_its_first_problem(tmp_path: Path) -> None:
    source = tmp_path / "notes.jsonl"
    source.write_text("Dear diary\n")
    result = export(source, "--format", "trl", "-o", tmp_path / "out.jsonl")
    assert (result.exit_code, "has no line that is a trajectory: line 1 of" in unwrapped(result.stderr)) == (2, True)


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_part_of_a_file(tmp_path: Path, number: signal.Signals, code: int) -> None:
    # The reader waits for a second trajectory that never comes.
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    command = [sys.executable, "-m", "refinesynth", "export", str(pipe), "--format", "trl", "-o"]
    with subprocess.Popen([*command, str(tmp_path / "out.jsonl")], stderr=subprocess.PIPE, text=True) as process:
        with pipe.open("wb", buffering=0) as writer:
            writer.write(a_trajectory().to_json() + b"\n")
            while not list(tmp_path.glob(".out.jsonl.*.part")) and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(60) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.jsonl"]


@pytest.mark.process
def test_two_exports_to_one_file_at_once_do_not_mix(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    code = "import sys; from pathlib import Path; from refinesynth.files.atomic_write import exclusive_access\n"
    code += "with exclusive_access(Path(sys.argv[1])): print('has it', flush=True); sys.stdin.read()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(out)], **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"has it\n"
        wanted = [run, "--format", "trl", "-o", out, "--overwrite"]
        refused = export(*wanted)
        assert refused.exit_code == 2
        assert "is being written by another process" in unwrapped(refused.stderr)
        assert not list(tmp_path.glob("*.jsonl"))
        other.communicate()
    assert export(*wanted).exit_code == 0


@pytest.mark.parametrize("name", ["trajectories.jsonl", "journal.sqlite", "config.json"])
def test_what_a_run_wrote_is_never_replaced(run: Path, name: str) -> None:
    before = (run / name).read_bytes()
    result = export(run, "--format", "openai", "-o", run / name, "--overwrite")
    assert result.exit_code == 2
    assert "is what a run wrote" in result.stderr
    assert (run / name).read_bytes() == before
    result = cli("personas", "sample", "-n", 1, "-o", run / name, "--overwrite")
    assert (result.exit_code, (run / name).read_bytes()) == (2, before)


def test_a_file_is_not_exported_onto_itself(tmp_path: Path) -> None:
    source = write_run(tmp_path / "run", [a_trajectory()]) / "trajectories.jsonl"
    (link := tmp_path / "link.jsonl").symlink_to(source)
    assert export(source, "--format", "openai", "-o", link, "--overwrite").exit_code == 2
    assert source.read_bytes() == a_trajectory().to_json() + b"\n"


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("kind", ["a link", "a FIFO"])
def test_links_and_fifos_are_left_as_they_are(run: Path, tmp_path: Path, kind: str, overwrite: tuple[str, ...]) -> None:
    (target := tmp_path / "precious").write_text("{}")
    path = tmp_path / "out.jsonl"
    path.symlink_to(target) if kind == "a link" else os.mkfifo(path)
    refused = export(run, "--format", "sharegpt", "-o", path, *overwrite)
    assert refused.exit_code == 2
    assert f"out.jsonl' is {kind}" in refused.stderr
    assert target.read_text() == "{}"
    assert {entry.name for entry in tmp_path.iterdir()} == {"out.jsonl", "precious"}


@pytest.mark.parametrize("name", ["", "trajectories.jsonl"])
def test_spoilt_lines_are_left_out_and_counted(run: Path, tmp_path: Path, name: str) -> None:
    source = shutil.copytree(run, tmp_path / "spoilt")
    first, second = (source / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (source / "trajectories.jsonl").write_bytes(first.replace(b'"goal"', b'"gaol"') + second)
    broken = export(source / name, "--format", "openai", "-o", tmp_path / "out.jsonl")
    assert broken.exit_code == 1
    assert "1 line left out: line 1 of" in broken.stderr
    assert "1 record of 1 trajectory" in broken.stdout
    assert export(run, "--format", "openai", "-o", tmp_path / "whole.jsonl").exit_code == 0
    whole = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert (tmp_path / "out.jsonl").read_bytes() == whole[1]


def test_a_run_of_which_lines_are_missing_is_not_exported(run: Path, tmp_path: Path) -> None:
    source = shutil.copytree(run, tmp_path / "short")
    lines = (source / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (source / "trajectories.jsonl").write_bytes(lines[0])
    refused = export(source, "--format", "openai", "-o", tmp_path / "out.jsonl")
    assert (refused.exit_code, "journal counts" in refused.stderr) == (2, True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and a model's description, which is all that tokens need."""
    from refinesynth.train.data import read_conversations
    from refinesynth.train.engine.loading import make_tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer: Any = make_tokenizer(read_conversations([[a_trajectory()]]))
    tokenizer.save_pretrained(str(folder))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


@pytest.mark.train
def test_tokens_are_written_with_what_is_cut_and_what_to_set(run: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    whole = export(run, "--format", "tokens", "--model", model, "-o", out)
    assert whole.exit_code == 0, whole.output
    assert whole.stdout.startswith(f"{out}: 2 records of 2 trajectories, as tokens with masking flag; ")
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    longest = max(len(row["input_ids"]) for row in rows)
    trained = sum(label != -100 for row in rows for label in row["labels"])
    assert f"{trained:,} of them trained on; the longest record has {longest:,}." in whole.stdout
    assert "`max_length=None`" in whole.stdout
    assert f"Token ids of the tokenizer of {model.name}.\n" in whole.stdout
    cut = export(run, "--format", "tokens", "--model", model, "-o", out, "--max-length", longest // 2, "--overwrite")
    assert cut.exit_code == 0, cut.output
    assert "cut at the end of a turn" in cut.stdout
    assert all(len(orjson.loads(line)["input_ids"]) <= longest // 2 for line in out.read_bytes().splitlines())
    assert f"max_length {longest // 2}." in cut.stdout
    every = export(run, "--format", "tokens", "-m", model, "-o", out, "--overwrite", "--loss-on", "all_turns")
    assert every.exit_code == 0, every.output
    assert ", 0 not" in every.stdout
    assert "Ask the tuned model" not in every.stdout
    given = export(
        run, "--format", "tokens", "-m", model, "-o", out, "--overwrite", "--set", "chat_template_kwargs.message=1"
    )
    assert "Ask the tuned model with the same message as here" in given.stdout, given.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "tokens"], "--format tokens needs --model"),
        (["--format", "token"], "did you mean 'tokens'?"),
        (["--format", "tokens", "-m", "x", "--masking", "split"], "--masking is for chat messages"),
        (["--format", "tokens", "-m", "x", "--set", "output=y"], "--set output cannot be given here"),
        (
            ["--format", "openai", "--model", "x", "--loss-on", "all_turns"],
            "--model, --loss-on is for --format tokens alone",
        ),
    ],
)
def test_settings_of_tokens_that_do_not_fit_are_2(
    run: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = export(run, "-o", tmp_path / "t.jsonl", *arguments)
    assert result.exit_code == 2
    assert message in unwrapped(result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_the_file_is_named_after_the_run_and_the_format(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(run, "--format", "openai").exit_code == 0
    assert export(run / "trajectories.jsonl", "--format", "trl").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"first.openai.jsonl", "trajectories.trl.jsonl"}
