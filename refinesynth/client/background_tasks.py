"""Background tasks of a context."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """Yield a task group, cancelled at the context's end; raise the block's error or a task's first without a group."""
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # noqa: BLE001 - raised below: the task group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
    except ExceptionGroup as errors:
        failure = failure or errors.exceptions[0]
    if failure is not None:
        raise failure
