"""Exports as files: whole or not at all, compressed, counted, and loaded by Hugging Face datasets."""

import gzip
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from export_samples import a_trajectory
from samples import SHED_GROUNDED, dm, player, trajectory

from refinesynth.errors import InputError
from refinesynth.export import FORMATS, Masking, export, write_export
from refinesynth.trajectory import Script, Trajectory

AWKWARD = 'a\u2028b\u2029c\x85d\x00e\x1b[31m"\\\r\nf\tg 😀 é </s> <image> {{x}}\ufeff'

Load = Callable[[Path], list[dict[str, Any]]]


def several() -> list[Trajectory]:
    awkward = a_trajectory(
        player("take moon", AWKWARD), dm(AWKWARD, "logic"), player("take mug"), dm("Task Succeed"), id="2"
    )
    other = awkward.script.model_copy(update={"environment": {"mug": [1, 2.5], "room": None, "n": {"k": "v"}}})
    renamed = Script.model_validate({**other.model_dump(), "actions": [{"name": "fly {x}", "pattern": "fly (.+)"}]})
    return [a_trajectory(), awkward, a_trajectory(id="3").model_copy(update={"script": renamed})]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """`datasets.load_dataset`, offline and with a cache that goes away."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets: Any = import_module("datasets")
    datasets.disable_progress_bars()

    def loaded(path: Path) -> list[dict[str, Any]]:
        cache = str(tmp_path / "cache")
        dataset = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        return [dict(row) for row in dataset]

    return loaded


def without_none(value: Any) -> Any:
    """A table has every key in every row; a key that a message does not have is None there."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in cast("dict[str, Any]", value).items() if item is not None}
    return [without_none(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "atif"])  # which holds scripts as they are
def test_every_export_loads_as_a_dataset(form: str, tmp_path: Path, load: Load) -> None:
    played = [trajectory(script=SHED_GROUNDED)] if form == "rl" else several()
    for masking in FORMATS[form].advice:
        path = tmp_path / f"{form}-{masking}.jsonl"
        report = write_export(played, path, form, masking=masking)
        rows = load(path)
        assert without_none(rows) == list(export(played, form, masking=masking))
        assert len(rows) == report.records


@pytest.mark.parametrize("suffix", [".gz", ".GZ"])
def test_compressed_exports_load_and_hold_the_same(suffix: str, tmp_path: Path, load: Load) -> None:
    plain, packed = tmp_path / "out.jsonl", tmp_path / f"out.jsonl{suffix}"
    write_export(several(), plain, "openai")
    write_export(several(), packed, "openai")
    raw = packed.read_bytes()
    assert gzip.decompress(raw) == plain.read_bytes()
    assert load(packed) == load(plain)
    write_export(several(), packed, "openai", overwrite=True)
    assert packed.read_bytes() == raw


def test_a_path_is_read_as_a_run_or_a_file_of_trajectories(tmp_path: Path) -> None:
    kept = [a_trajectory()]
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(b"".join(one.to_json() + b"\n" for one in kept))
    assert list(export(path, "openai")) == list(export(str(path), "openai")) == list(export(kept, "openai"))
    assert write_export(path, tmp_path / "out.jsonl", "openai").trajectories == 1
    with pytest.raises(InputError, match="there is no 'runs/none'; give the folder of a run"):
        export("runs/none", "openai")


def test_the_report_counts(tmp_path: Path) -> None:
    nothing = a_trajectory(player("take moon"), dm("No.", "place"), id="9")
    whole = write_export([a_trajectory(), nothing], tmp_path / "a.jsonl", "openai")
    assert (whole.trajectories, whole.left_out, whole.records, whole.trained, whole.masked) == (2, 1, 1, 2, 2)
    assert whole.masking is Masking.FLAG
    assert "weight" in whole.advice
    split = write_export([a_trajectory(), nothing], tmp_path / "b.jsonl", "sharegpt")
    assert (split.trajectories, split.left_out, split.records, split.trained, split.masked) == (2, 1, 2, 2, 5)
    assert "mask_history: true" in split.advice


def test_nothing_to_train_on_leaves_no_file(tmp_path: Path) -> None:
    for given in ([], [a_trajectory(player("take moon"), dm("No.", "place"))]):
        with pytest.raises(InputError, match=f"none of {len(given)} trajectories"):
            write_export(given, tmp_path / "out.jsonl", "openai")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_breaks_leaves_what_was_there(tmp_path: Path) -> None:
    def breaking() -> Iterator[Trajectory]:
        yield a_trajectory()
        raise RuntimeError("the disk with the run went away")

    path = tmp_path / "deep" / "out.jsonl"
    with pytest.raises(RuntimeError, match="went away"):
        write_export(breaking(), path, "openai")
    assert list(path.parent.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(RuntimeError, match="went away"):
        write_export(breaking(), path, "openai", overwrite=True)
    assert [(item.name, item.read_text()) for item in path.parent.iterdir()] == [("out.jsonl", "mine")]
