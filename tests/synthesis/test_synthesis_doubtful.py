"""What a backend rejects, or answers with nothing to use, from the beginning on is no end of an episode: settings are
corrected, and it is played."""

from pathlib import Path
from typing import Any

import pytest
from run_records import contents

from refinesynth.backends import Role
from refinesynth.client.session import current_request
from refinesynth.errors import RunStopped
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.synthesis import synthesize
from refinesynth.trajectory import Trajectory

PEOPLE = [f"Somebody with the number {number}" for number in range(30)]


class Rejected(Exception):
    status_code = 400


class Server:
    """Rejects requests, from the beginning on or `after` some, up to the `bad`-th."""

    def __init__(self, bad: float, after: int = 0) -> None:
        self.bad, self.after, self.answers = bad, after, Rehearsal()
        self.asked: int = 0

    async def __call__(self, **request: Any) -> Any:
        self.asked += 1
        if self.after < self.asked <= self.bad:
            return self.useless()
        return await self.answers(**request)

    def useless(self) -> Any:
        raise Rejected("unknown parameter")


class Thinking(Server):
    """Puts its answers into `reasoning_content` instead, and is paid for them."""

    def useless(self) -> Any:
        message = {"role": "assistant", "content": "", "reasoning_content": "I think that a script is wanted."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


async def run(path: Path, server: Server, **given: Any) -> Any:
    chosen: dict[str, Any] = {"n": 3, "play": "narrated", "concurrency": 2, "backend": "openai/gpt-x", **given}
    return await synthesize(PEOPLE, output=path, call=server, **chosen)


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("after", [0, 3])
async def test_episodes_that_are_rejected_from_some_point_on_are_played_when_the_cause_is_gone(
    tmp_path: Path, concurrency: int, after: int
) -> None:
    with pytest.raises(
        RunStopped, match=r"rejects the request with HTTP 400 .*The run stopped with \d episodes? finished"
    ):
        await run(tmp_path / "run", Server(10**9, after=after), n=5, concurrency=concurrency)
    episodes = list(RunFolder.open(tmp_path / "run").episodes())
    assert all(line.accepted for line in episodes)
    assert after or not episodes
    await run(tmp_path / "run", Server(0), n=5)
    await run(tmp_path / "whole", Server(0), n=5)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize("server", [Server(2), Thinking(6)], ids=["rejected", "empty"])
async def test_what_came_to_nothing_is_an_end_of_its_episode_as_soon_as_another_is_answered(
    tmp_path: Path, server: Server
) -> None:
    result = await run(tmp_path / "run", server, concurrency=1)
    assert result.reached
    assert [line.accepted for line in RunFolder.open(tmp_path / "run").episodes()][:3] == [False, False, True]


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_episodes_that_were_given_thoughts_alone_are_played_when_the_cause_is_gone(
    tmp_path: Path, concurrency: int
) -> None:
    server = Thinking(10**9)
    with pytest.raises(RunStopped, match=r"only thoughts.*The run stopped with 0 episodes finished"):
        await run(tmp_path / "run", server, concurrency=concurrency)
    folder = RunFolder.open(tmp_path / "run")
    assert (folder.totals().episodes, folder.waiting_lines()) == (0, [])
    wasted = requests(folder)
    assert 0 < wasted <= server.asked
    result = await run(tmp_path / "run", Thinking(0))
    whole = await run(tmp_path / "whole", Thinking(0))
    assert [words(one) for one in result] == [words(one) for one in whole]
    # What the useless answers have cost is counted beside.
    assert requests(folder) == wasted + requests(RunFolder.open(tmp_path / "whole"))
    assert sum(one.provenance.usage.requests for one in result) > sum(one.provenance.usage.requests for one in whole)


async def test_what_was_useless_before_is_asked_again_and_no_evidence(tmp_path: Path) -> None:
    for _ in range(3):
        server = Thinking(10**9)
        with pytest.raises(RunStopped, match="so it was with each of the first 5 requests"):
            await run(tmp_path / "run", server, concurrency=1)
        # Five requests, three tries each.
        assert server.asked == 15


async def test_an_episode_that_ended_without_anything_to_use_is_made_again_for_free(tmp_path: Path) -> None:
    # The second persona's script, three times; the first one takes three requests.
    server = Thinking(6, after=3)
    await run(tmp_path / "run", server, concurrency=1)
    before, asked = contents(tmp_path / "run"), server.asked
    assert [line.accepted for line in RunFolder.open(tmp_path / "run").episodes()][:2] == [True, False]
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        (tmp_path / "run" / name).write_bytes(b"")
    await run(tmp_path / "run", server, concurrency=1)
    assert (contents(tmp_path / "run"), server.asked) == (before, asked)


class OneRole(Server):
    """Answers the ScriptWriter, and rejects all other requests."""

    async def __call__(self, **request: Any) -> Any:
        if current_request().role == Role.SCRIPT_WRITER:
            return await self.answers(**request)
        self.asked += 1
        return self.useless()


async def test_answers_to_one_role_excuse_no_rejections_of_another(tmp_path: Path) -> None:
    server = OneRole(0)
    with pytest.raises(RunStopped, match="rejects the request with HTTP 400"):
        await run(tmp_path / "run", server, n=20, play="live", concurrency=4)
    # Each is sent twice: with the default bound of an answer, and without it.
    assert server.asked <= 2 * (20 + 4)
    assert RunFolder.open(tmp_path / "run").totals().episodes == 0


def words(trajectory: Trajectory) -> object:
    return trajectory.model_dump(exclude={"provenance": {"usage"}})


def requests(folder: RunFolder) -> int:
    return sum(row.requests for row in folder.spent())
