"""A run leaves the same files whichever path its requests take: straight to the server, or through litellm."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest
from faulty_server import GARBAGE, faulty_app

from refinesynth import Backend, synthesize
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import running

pytestmark = pytest.mark.process

PERSONAS = ["a lighthouse keeper who repairs clocks", "a baker", "a night nurse", "a bicycle courier", "a beekeeper"]
SERVERS: dict[str, dict[int | str, float]] = {
    "well": {},
    "failing": {429: 0.05, 500: 0.05, 503: 0.02, "garbage": 0.05},
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Both servers for all tests: litellm keeps its connections, and drops those to a server that has gone without
    closing them. None answers with a surrogate in UTF-8: litellm's client reads it as another character, and asks on.
    """
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(running(faulty_app(Rehearsal(faults=Faults()), faults, garbage=GARBAGE[:-1])))
            for name, faults in SERVERS.items()
        }


async def records(folder: Path, backend: Backend, play: Literal["live", "narrated"]) -> dict[str, bytes]:
    """What a run wrote that does not say when or where it ran."""
    result = await synthesize(PERSONAS, n=3, backend=backend, play=play, output=folder, seed=5)
    assert len(result) == 3
    return {name: (folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("play", ["live", "narrated"])
@pytest.mark.parametrize("model", ["hosted_vllm/rehearsal", "openai/rehearsal"])
async def test_both_paths_leave_the_same_files(
    model: str, play: Literal["live", "narrated"], server: str, addresses: dict[str, str], tmp_path: Path
) -> None:
    asked = Backend(model=model, base_url=f"{addresses[server]}/v1", longest_wait=0.01, retries=30)
    lean = await records(tmp_path / "direct", asked.model_copy(update={"path": "direct"}), play)
    assert lean["trajectories.jsonl"]
    assert lean == await records(tmp_path / "litellm", asked.model_copy(update={"path": "litellm"}), play)
