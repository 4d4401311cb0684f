"""The worlds of a run: each once, found by a trajectory's id; what is none is said."""

from pathlib import Path

import pytest
from samples import KITCHEN, SHED_GROUNDED, trajectory

from refinesynth.environments import find_world, read_worlds
from refinesynth.errors import InputError
from refinesynth.trajectory import Trajectory


def stored(folder: Path, *trajectories: Trajectory) -> Path:
    path = folder / "trajectories.jsonl"
    path.write_bytes(b"".join(one.to_json() + b"\n" for one in trajectories))
    return path


def test_each_world_is_there_once_under_its_first_trajectorys_name(tmp_path: Path) -> None:
    other = SHED_GROUNDED.model_copy(update={"goal": "Open the box."})
    path = stored(
        tmp_path,
        trajectory(script=SHED_GROUNDED, id="000000-aaaaaaaa"),
        trajectory(script=KITCHEN, id="000001-aaaaaaaa"),
        trajectory(script=SHED_GROUNDED, id="000002-aaaaaaaa"),
        trajectory(script=other, id="000003-aaaaaaaa"),
    )
    assert [(one.id, one.script) for one in read_worlds(path)] == [
        ("000000-aaaaaaaa", SHED_GROUNDED),
        ("000003-aaaaaaaa", other),
    ]
    assert find_world(path).id == "000000-aaaaaaaa"
    assert find_world(path, "000002-aaaaaaaa").script == SHED_GROUNDED
    with pytest.raises(InputError, match=r"'000001-aaaaaaaa' is not grounded"):
        find_world(path, "000001-aaaaaaaa")
    with pytest.raises(InputError, match=r"no trajectory 'nope'"):
        find_world(path, "nope")


def test_what_holds_no_world_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no script in .* is grounded"):
        list(read_worlds(stored(tmp_path, trajectory(script=KITCHEN))))
    with pytest.raises(InputError, match="there is no"):
        find_world(tmp_path / "nowhere")
