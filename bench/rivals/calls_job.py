"""The job in refinesynth's model and journal alone: calls_job.py BASE_URL FOLDER COUNT; prints how many answers there
are.

The same command again goes on in the same folder.
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters

from refinesynth.backends import Backend, Role
from refinesynth.client import open_model
from refinesynth.client.session import Session
from refinesynth.journal import Journal
from refinesynth.run import EpisodeMemory
from refinesynth.synthesis.concurrency import tune_gc

CONCURRENCY = 256


async def main(base_url: str, folder: Path, count: int) -> None:
    model = open_model(Backend(model="hosted_vllm/bench", base_url=base_url, path="direct"))
    numbers = iter(range(count))
    begun = (folder / "journal.sqlite").exists()
    journal = Journal(folder / "journal.sqlite")

    async def work() -> None:
        for number in numbers:
            await _answer(model, journal, number, begun=begun)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work())
    print(sum(row.requests for row in journal.spent()))
    journal.close()


async def _answer(model: Model, journal: Journal, number: int, *, begun: bool) -> None:
    name = f"{number:06d}"
    memory = EpisodeMemory(journal, name, begun=begun)
    session = Session(id=name, seed=number, index=number, memory=memory)
    asked = ModelRequest([UserPromptPart(f"Describe the person with the number {number} in one sentence.")])
    await session.model(Role.PLAYER, model).request([asked], None, ModelRequestParameters())


if __name__ == "__main__":
    # As the command line does for a run.
    tune_gc()
    place = Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(sys.argv[1], place, int(sys.argv[3])))
