"""Tasks that go on beside a block, and end with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


@asynccontextmanager
async def beside() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """A group whose tasks are cancelled when the block ends; what the block raises comes out as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - raised below, so that the task group does not wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
