"""Environments in processes of their own: that none hangs or kills an evaluation, and that none is left over."""

import os
import subprocess
import sys
import time
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos import BENCHMARK

from refinesynth.errors import InputError
from refinesynth.evaluate.environment_pool import (
    EnvironmentFault,
    EnvironmentPool,
    EnvironmentProcess,
    default_pool_size,
)
from refinesynth.evaluate.environments.environment import Instance
from refinesynth.synthesis import concurrency

pytestmark = pytest.mark.process


@pytest.fixture
def pool():
    found = EnvironmentPool(BENCHMARK, size=2)
    yield found
    found.close()


def instance(wrong: dict[str, str] | None = None, **data: Any) -> Instance:
    return Instance("one", {"wrong": wrong or {}, **data})


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def counted(pool: EnvironmentPool, one: Instance) -> tuple[bool, list[str]]:
    """Whether three actions won, and what befell the processes."""
    async with pool.episode(one) as episode:
        await episode.reset()
        steps = [await episode.step("count") for _ in range(3)]
        return steps[-1].success, episode.faults


@pytest.mark.representative
@pytest.mark.parametrize("wrong", ["die", "hang", "raise"])
async def test_a_failed_episode_begins_anew_in_a_new_process_and_no_other_is_hurt(pool: EnvironmentPool, wrong: str):
    async with pool.episode(instance({"2": wrong})) as episode:
        for _ in range(2):
            await episode.reset()
            assert (await episode.step("count")).progress == pytest.approx(1 / 3)
            with pytest.raises(EnvironmentFault, match=r"ended|in time|on purpose"):
                await episode.step("count")
        assert len(episode.faults) == 2
    assert await counted(pool, instance()) == (True, [])


async def test_what_an_environment_prints_does_not_stand_between_the_answers(pool: EnvironmentPool):
    assert await counted(pool, instance({"0": "print", "1": "print", "2": "print"})) == (True, [])


async def test_a_process_that_leaks_is_replaced_between_two_episodes(pool: EnvironmentPool):
    pids: set[str] = set()
    for _ in range(6):
        async with pool.episode(instance({"1": "leak"})) as episode:
            pids.add((await episode.reset()).introduction)
            await episode.step("count")
            assert not episode.faults
    assert 2 < len(pids) < 6  # 60 MiB each, and a process of more than 100 is not kept


async def test_a_process_is_replaced_after_its_share_of_episodes():
    pool = EnvironmentPool(replace(BENCHMARK, episodes=2), size=1)
    pids: list[str] = []
    for _ in range(4):
        async with pool.episode(instance()) as episode:
            pids.append((await episode.reset()).introduction)
    pool.close()
    assert len(set(pids)) == 2


async def test_no_process_is_left_when_the_pool_is_closed(pool: EnvironmentPool):
    async with pool.episode(instance()) as episode:
        pid = int((await episode.reset()).introduction.split()[1])
    assert alive(pid)
    pool.close()
    assert not alive(pid)


async def test_a_bad_instance_is_said_in_words(pool: EnvironmentPool):
    async with pool.episode(instance(bad=True)) as episode:
        with pytest.raises(InputError, match="bad on purpose"):
            await episode.reset()
    assert await counted(pool, instance()) == (True, [])


def test_a_missing_package_says_what_to_install():
    pool = EnvironmentPool(replace(BENCHMARK, environment="no_such_package:X", extra="refinesynth[chaos]"))
    with pytest.raises(InputError, match=r"no_such_package.*refinesynth\[chaos\].*--python chaos=PATH"):
        pool.check()


def test_an_interpreter_that_is_none_is_said():
    with pytest.raises(InputError, match="--python chaos=PATH"):
        EnvironmentPool(BENCHMARK, python="/no/such/python").check()
    with pytest.raises(EnvironmentFault, match="ended"):
        EnvironmentPool(BENCHMARK, python="/bin/true").check()


async def test_an_environment_runs_in_an_interpreter_that_has_nothing_installed(tmp_path: Path):
    venv.create(tmp_path / "bare", symlinks=True)
    pool = EnvironmentPool(BENCHMARK, size=1, python=str(tmp_path / "bare" / "bin" / "python"))
    assert await counted(pool, instance()) == (True, [])
    pool.close()


@pytest.mark.parametrize("hangs", [False, True])
def test_no_environment_outlives_a_killed_evaluation(hangs: bool):
    program = (
        "import sys, time, threading\n"
        "from refinesynth.evaluate.environments.environment import Instance\n"
        "from refinesynth.evaluate.environment_pool import EnvironmentProcess\n"
        "from tests.evaluate.chaos import BENCHMARK\n"
        "from dataclasses import replace\n"
        "p = EnvironmentProcess(replace(BENCHMARK, step_seconds=60))\n"
        f"p.reset(Instance('one', {{'wrong': {{'1': 'hang'}} if {hangs} else {{}}}}))\n"
        "print(p.pid, flush=True)\n"
        "p.step('count')\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    until = time.monotonic() + 20
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_request_is_not_waited_for_longer_than_a_step_may_take():
    """A process that does not read would block whoever writes more than a pipe holds."""
    process = EnvironmentProcess(replace(BENCHMARK, step_seconds=0.5))
    process.reset(instance())
    os.kill(process.pid, 19)  # SIGSTOP
    with pytest.raises(EnvironmentFault, match="in time"):
        process.step("x" * 1_000_000)
    process.end()
    assert not alive(process.pid)


def test_a_pool_has_room_for_what_its_processes_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert 1 <= default_pool_size(BENCHMARK) <= 16
    assert default_pool_size(replace(BENCHMARK, memory_mb=10**9)) == 1
    (tmp_path / "memory.max").write_text(str(1_024 * 2**20))
    monkeypatch.setattr(concurrency, "_LIMIT_FILES", (str(tmp_path / "memory.max"),))
    assert default_pool_size(replace(BENCHMARK, memory_mb=128)) == 4
