"""Logs shown: by Inspect's own server, or as a static site."""

import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Final

from refinesynth.errors import InputError

HOST: Final = "127.0.0.1"
PORT: Final = 7575
"""Inspect's own."""

_ABSOLUTE: Final = re.compile(r', "abs_log_dir": "(?:[^"\\]|\\.)*"')


def free_port(wanted: int | None) -> int:
    """`wanted`, or where nothing is asked for the usual one, or another if that is taken.

    Raises:
        InputError: `wanted` cannot be listened on.
    """
    try:
        return _bound(PORT if wanted is None else wanted)
    except OSError as error:
        if wanted is None:
            return _bound(0)
        raise InputError(
            f"port {wanted} of {HOST} cannot be used ({error.strerror}); give another --port, or none"
        ) from error


def _bound(port: int) -> int:
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        return listener.getsockname()[1]


def serve(folder: Path, port: int) -> None:
    """Serve the viewer for a folder of logs on this machine alone, until it is interrupted."""
    # Inspect's command for it would first end whatever process has the number that a file names for this port.
    from inspect_ai._view.fastapi_server import view_server

    view_server(str(folder.resolve()), host=HOST, port=port)


def refuse_existing(site: Path) -> None:
    """Raises: InputError: There is something where a site is to be written; nothing is replaced."""
    if site.exists():
        raise InputError(f"{str(site)!r} exists already; give a new folder for the site, or remove that one")


def bundle(folder: Path, site: Path) -> None:
    """Write the viewer with these logs as a static site, which any web server can serve.

    Raises:
        InputError: There is something at `site`, or it is within `folder`.
    """
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.log import bundle_log_dir

    refuse_existing(site)
    try:
        # In full: a name like hf/NAME/SPACE would be uploaded.
        bundle_log_dir(str(folder.resolve()), str(site.resolve()))
    except PrerequisiteError as error:
        raise InputError(f"the site cannot be written: {error}") from error
    # Where the logs lie on this machine is nobody's business who looks at the site.
    index = site / "index.html"
    index.write_text(_ABSOLUTE.sub("", index.read_text(encoding="utf-8")), encoding="utf-8")
