"""An S3 server in this process."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Thread

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


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
