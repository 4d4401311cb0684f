"""A run that an earlier version began goes on, asks for what is missing alone, and ends with the bytes of one that was
never killed."""

import tarfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import begun_before
import orjson
import pytest
from begun_before import BEGUN, FILES, PLAYS, Recorded

from refinesynth import synthesize
from refinesynth.errors import RunFolderError
from refinesynth.settings.run import PlaySettings

Named = Literal["live", "narrated", "grounded"]


@pytest.fixture(params=PLAYS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Named, Path]:
    with tarfile.open(BEGUN / f"{request.param}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    return request.param, tmp_path


def recorded(folder: Path) -> Recorded:
    return Recorded(orjson.loads((folder / "answers.json").read_bytes()))


def config(folder: Path) -> dict[str, Any]:
    """Without the versions, without a setting that there was then and that stood at its default, and without one of
    connections that there is now and that stands at its own.
    """
    found: dict[str, Any] = orjson.loads((folder / "config.json").read_bytes())
    for connection in found["connections"].values():
        assert connection.pop("session_headers", "auto") == "auto"
        assert connection.pop("hedge", False) is False
    return {**found, "versions": None}


BOUNDS = {"player": 512, "dungeon_master": 768}
"""Default bounds of a new run."""


@pytest.mark.long
async def test_it_goes_on_and_ends_as_if_nothing_had_happened(before: tuple[Named, Path]) -> None:
    play, folder = before
    answers, missing = recorded(folder), orjson.loads((folder / "asked.json").read_bytes())
    assert 0 < len(missing) < len(answers.answers)
    await begun_before.play(play, answers, folder / "begun")
    assert Counter(answers.asked) == Counter(missing)
    for file in FILES:
        assert (folder / "begun" / file).read_bytes() == (folder / "finished" / file).read_bytes()


@pytest.mark.long
async def test_the_same_answers_give_the_same_bytes(before: tuple[Named, Path]) -> None:
    play, folder = before
    await begun_before.play(play, recorded(folder), folder / "new")
    for file in FILES:
        assert (folder / "new" / file).read_bytes() == (folder / "finished" / file).read_bytes()
    new, begun = config(folder / "new"), config(folder / "begun")
    later = {key: new.pop(key) for key in new.keys() - begun.keys()}
    bounds = {role: model["max_tokens"] for role, model in new["models"].items()}
    assert {role: bound for role, bound in bounds.items() if bound is not None} == {
        role: BOUNDS[role] for role in bounds.keys() & BOUNDS.keys()
    }
    for role, model in begun["models"].items():
        model["max_tokens"] = bounds[role]  # runs that were begun before have none
    assert new == begun
    assert later == PlaySettings().model_dump(mode="json", include=set(later)), "a later setting stands at its default"


async def test_with_another_seed_it_is_refused(before: tuple[Named, Path]) -> None:
    play, folder = before
    with pytest.raises(RunFolderError, match=r"seed: 3 -> 4"):
        await synthesize(
            begun_before.PEOPLE, 6, "openai/any", play=play, call=recorded(folder), output=folder / "begun", seed=4
        )
