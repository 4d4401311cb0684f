"""What a backend rejects from the beginning on is no end of an episode: settings are corrected, and it is played."""

from pathlib import Path
from typing import Any

import pytest
from run_records import contents

from refinesynth.errors import RunStopped
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.synthesis import synthesize

PEOPLE = [f"Somebody with the number {number}" for number in range(12)]


class Rejected(Exception):
    status_code = 400


class Server:
    """Rejects requests, from the beginning on, as long as it has `bad` left."""

    def __init__(self, bad: float) -> None:
        self.bad, self.asked, self.answers = bad, 0, Rehearsal()

    async def __call__(self, **request: Any) -> Any:
        self.asked += 1
        if self.asked <= self.bad:
            raise Rejected("unknown parameter")
        return await self.answers(**request)


async def run(path: Path, server: Server, **given: Any) -> Any:
    chosen: dict[str, Any] = {"n": 3, "play": "narrated", "concurrency": 2, **given}
    return await synthesize(PEOPLE, output=path, backend="openai/gpt-x", call=server, **chosen)


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_episodes_that_met_only_rejections_are_played_when_the_cause_is_gone(
    tmp_path: Path, concurrency: int
) -> None:
    with pytest.raises(RunStopped, match="The run stopped with 0 episodes finished"):
        await run(tmp_path / "run", Server(10**9), concurrency=concurrency)
    folder = RunFolder.open(tmp_path / "run")
    assert (folder.totals().episodes, folder.waiting_lines()) == (0, [])
    await run(tmp_path / "run", Server(0))
    await run(tmp_path / "whole", Server(0))
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


async def test_one_prompt_that_is_rejected_is_an_end_of_its_episode_as_soon_as_another_is_answered(
    tmp_path: Path,
) -> None:
    result = await run(tmp_path / "run", Server(2), concurrency=1)
    assert result.reached
    assert [line.accepted for line in RunFolder.open(tmp_path / "run").episodes()][:3] == [False, False, True]


async def test_fewer_personas_than_show_it_for_sure_are_told_the_reason_too(tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="unknown parameter"):
        await synthesize(PEOPLE[:2], output=tmp_path / "run", backend="openai/gpt-x", call=Server(10**9), n=2)
    assert RunFolder.open(tmp_path / "run").totals().episodes == 0
