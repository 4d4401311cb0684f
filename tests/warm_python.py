"""Processes that begin at once: forked from one that has imported all that takes seconds, which all workers of pytest
share.

What is tested of them is not how they start: a fresh Python does that in other tests, and is what a test takes that
looks at imports, hash seeds, memory or the environment at start.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock

_HERE = Path(__file__).parent
_PATIENCE = 300
"""Seconds; on a machine that does much else, importing takes long."""


@contextmanager
def warm_programs(shared: Path) -> Generator[Path]:
    """A folder with `python`, `refinesynth` and `torchrun`, that are to be found in it while the block runs.

    `shared` is a folder that all workers know.
    """
    folder, address = shared / "warm", shared / "warm" / "socket"
    with ExitStack() as until:
        with FileLock(shared / "warm.lock"):
            if not folder.exists():
                folder.mkdir()
                until.enter_context(_begun(folder, address))  # left when the process has ended
        there = until.enter_context(socket.socket(socket.AF_UNIX))
        there.connect(str(address))  # as long as somebody is connected it does not end
        yield folder


def _begun(folder: Path, address: Path) -> subprocess.Popen[bytes]:
    for name, arguments in (
        ("python", ""),
        ("refinesynth", "-m refinesynth"),
        ("torchrun", "-m torch.distributed.run"),
    ):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -SI {_HERE}/warm_client.py {address} {arguments} "$@"\n')
        program.chmod(0o755)
    started = subprocess.Popen(
        [sys.executable, str(_HERE / "warm_server.py"), str(address)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        stdin=subprocess.DEVNULL,
        # No file: of a stream that began as one it would be believed ever after that it can be sought in.
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    until = time.monotonic() + _PATIENCE
    while not address.exists():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    return started
