"""An S3 server in this process, and a store that is down."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Thread

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from refinesynth.errors import StorageError
from refinesynth.stores.store import RunStore


@contextmanager
def serving(port: int) -> Generator[int]:
    """moto's S3; what was put there outlives the server, as long as this process lives."""
    server = make_server("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def store_down(patch: pytest.MonkeyPatch, is_down: Callable[[int], bool]) -> None:
    """From now on, segments of whose number this is true cannot be added."""
    real = RunStore.add

    async def add(self: RunStore, number: int, data: bytes) -> None:
        if is_down(number):
            raise StorageError("the store is down")
        await real(self, number, data)

    patch.setattr(RunStore, "add", add)
