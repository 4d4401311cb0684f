"""What the package logs goes into the events of the run that is going on, as far as its level asks for it."""

import logging
from pathlib import Path

import pytest
from run_records import events

from refinesynth import synthesize
from refinesynth.errors import ConfigurationError


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("workers", [1, 2])
async def test_at_level_debug_every_completion_is_an_event_that_joins_with_the_journal(
    tmp_path: Path, workers: int
) -> None:
    result = await synthesize(n=2, output=tmp_path / "run", log_level="debug", concurrency=1, workers=workers)
    found = events(tmp_path / "run", "completion")
    finished = {event["id"] for event in events(tmp_path / "run", "episode_finished")}
    assert {event["episode"] for event in found} >= finished
    of_finished = [event for event in found if event["episode"] in finished]
    assert len(of_finished) == result.usage.requests
    assert len({(event["episode"], event["role"], event["step"]) for event in of_finished}) == len(of_finished)
    assert all(event["level"] == "debug" for event in found)


async def test_at_other_levels_there_is_less(tmp_path: Path) -> None:
    for level in ("info", "warning"):
        await synthesize(n=1, output=tmp_path / level, log_level=level)
    assert {event["event"] for event in events(tmp_path / "info")} == {"run_started", "episode_finished", "run_ended"}
    # Whoever looks at the run from outside needs to know when it began and ended.
    assert {event["event"] for event in events(tmp_path / "warning")} == {"run_started", "run_ended"}


async def test_what_is_logged_while_a_run_goes_on_is_in_its_events(tmp_path: Path) -> None:
    log = logging.getLogger("refinesynth.backends")

    def on_progress(_: object) -> None:
        log.warning("%s is down", "it", extra={"facts": {"event": "outage", "since": 3}})
        log.warning("only text")

    await synthesize(n=1, output=tmp_path / "run", on_progress=on_progress)
    log.warning("after the run")
    found = [event for event in events(tmp_path / "run") if event["level"] == "warning"]
    assert {(event["event"], event["text"]) for event in found} == {("outage", "it is down"), ("log", "only text")}
    assert found[0]["since"] == 3


async def test_an_unknown_level_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="log_level is 'loud'; should be 'debug', 'info', 'warning' or 'error'"
    ):
        await synthesize(n=1, output=tmp_path / "run", log_level="loud")  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()
