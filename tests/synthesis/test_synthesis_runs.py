"""Whole runs against the rehearsal, in this process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_records import events, kept

from refinesynth.errors import ConfigurationError
from refinesynth.run import RunFolder
from refinesynth.settings.setting_presets import paper
from refinesynth.synthesis import synthesize


async def test_the_papers_preset_runs(tmp_path: Path) -> None:
    asked: dict[str, Any] = {**paper(), "backend": "rehearsal"}
    result = await synthesize(None, 4, **asked, output=tmp_path / "run")
    assert result.reached
    assert result.config.rules == repr(paper()["rules"])
    assert all(line.usage.requests <= 4 for line in RunFolder.open(result.path).episodes())


HANGING = """
import sys
import anyio
from refinesynth.rehearsal import Rehearsal
from refinesynth.synthesis import synthesize

rehearsal = Rehearsal()
asked = 0

async def call(**request):
    global asked
    asked += 1
    if asked > 40:
        print("hangs", flush=True)
        await anyio.sleep_forever()
    return await rehearsal(**request)

async def main():
    await synthesize(None, 100, "openai/any", play="narrated", output=sys.argv[1], call=call, concurrency=4)

anyio.run(main)
"""


@pytest.mark.process
def test_control_c_ends_a_hanging_run_with_everything_finished_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-c", HANGING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"hangs\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert errors.splitlines()[-1] == b"KeyboardInterrupt"
    finished = kept(path).keys()
    assert finished == {event["index"] for event in events(path, "episode_finished")}
    assert finished
    assert events(path)[-1]["why"] == "interrupted"


@pytest.mark.process
async def test_a_key_is_asked_for_only_where_a_role_is_played(tmp_path: Path) -> None:
    backends = {"default": "rehearsal", "narrator": "gpt-4o", "judge": "claude"}
    result = await synthesize(n=1, backend=backends, output=tmp_path / "run")
    assert result.reached
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        await synthesize(n=1, backend=backends, play="narrated", output=tmp_path / "other")
    assert not (tmp_path / "other").exists()
