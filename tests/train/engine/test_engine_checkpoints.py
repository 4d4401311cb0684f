"""What makes a checkpoint sound, and which one is taken."""

from pathlib import Path

import pytest

from refinesynth.errors import InputError
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.checkpoints import MARK, Checkpoint

pytestmark = [pytest.mark.train, pytest.mark.representative]


def make(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    (path / "split").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights" * step)
    (path / "split" / "rank0.pt").write_bytes(b"moments")
    if marked:
        checkpoints.mark(path, step=step, identity={"learning_rate": 5e-6, "seed": 0})
    return path


@pytest.mark.parametrize("name", ["model.safetensors", "split/rank0.pt"])
def test_any_damage_makes_it_unsound(tmp_path: Path, name: str):
    for number, damage in enumerate((b"", b"weighTs" * 3, b"weights" * 3 + b"x", None)):
        path = make(tmp_path / str(number), 3)
        if damage is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(damage)
        assert isinstance(checkpoints.read(path), str)


@pytest.mark.parametrize(
    "mark",
    [b"", b"{", b"[]", b"{}", b'{"step": "x", "files": {}, "identity": {}}', b'{"step":1,"files":[1],"identity":{}}'],
)
def test_a_mark_that_cannot_be_read_makes_it_unsound(tmp_path: Path, mark: bytes):
    path = make(tmp_path, 3)
    (path / MARK).write_bytes(mark)
    assert isinstance(checkpoints.read(path), str)


def test_large_files_are_known_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoints, "_MAX_HASHED_BYTES", 4)
    path = make(tmp_path, 3)
    (path / "model.safetensors").write_bytes(b"Weights" * 3)
    assert isinstance(checkpoints.read(path), Checkpoint)
    (path / "model.safetensors").write_bytes(b"weights" * 2)
    assert isinstance(checkpoints.read(path), str)


def test_the_newest_sound_one_is_taken_by_number_and_others_are_named(tmp_path: Path):
    for step in (2, 10):
        make(tmp_path, step)
    make(tmp_path, 12, marked=False)
    (tmp_path / "checkpoint-best").mkdir()
    found, remarks = checkpoints.find_newest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert len(remarks) == 1
    assert "checkpoint-12" in remarks[0]


@pytest.mark.parametrize(("keep", "kept"), [(1, [3, 4]), (3, [2, 3, 4]), (4, [2, 3, 4, 6])])
def test_rotation_keeps_what_was_written_and_drops_higher_steps_first(tmp_path: Path, keep: int, kept: list[int]):
    for step in (2, 3, 4, 5, 6):
        make(tmp_path, step, marked=step != 5)
    checkpoints.rotate(tmp_path, keep=keep, best=tmp_path / "checkpoint-3", written=4)
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path)] == [f"checkpoint-{step}" for step in kept]


def test_other_settings_are_refused_field_by_field(tmp_path: Path):
    found = checkpoints.read(make(tmp_path, 3))
    assert isinstance(found, Checkpoint)
    checkpoints.refuse_differences(found, {"learning_rate": 5e-6, "seed": 0})
    with pytest.raises(InputError) as refused:
        checkpoints.refuse_differences(found, {"learning_rate": 1e-5, "seed": 0, "lora": {"rank": 4}})
    text = str(refused.value)
    assert "learning_rate: 5e-06 in the checkpoint, 1e-05 now" in text
    assert "lora: 'not known' in the checkpoint" in text
    assert "seed" not in text


def test_a_checkpoint_of_an_earlier_form_is_refused_with_what_to_do(tmp_path: Path):
    path = make(tmp_path, 3)
    mark = (path / MARK).read_text()
    (path / MARK).write_text(mark.replace('"format": 2,', ""))
    for look in (lambda: checkpoints.read(path), lambda: checkpoints.find_newest(tmp_path)):
        with pytest.raises(InputError, match=r"written by refinesynth .* another output folder"):
            look()
