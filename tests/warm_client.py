"""Takes the place of `python`: has a process forked that has imported everything, and is to the outside as that one is.

    python -SI warm_client.py SOCKET ARGUMENTS...

Its files, folder, environment and limit on the size of files are handed on, and so is every signal that it gets; it
ends as that process ends, which is killed if this one is. Imports little, to begin at once.
"""

import marshal
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def ask(
    address: str, arguments: Sequence[str], *, environment: Mapping[str, str], most_bytes: int, files: Sequence[int]
) -> socket.socket:
    """Ask for a process; what comes back is its number and then how it ended, a line each. A byte that is sent is a
    signal for it."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    python = address.rpartition("/")[0] + "/python"
    task = marshal.dumps((list(arguments), python, os.getcwd(), dict(environment), most_bytes))  # noqa: PTH109
    socket.send_fds(server, [len(task).to_bytes(4, "big")], files)
    server.sendall(task)
    return server


def main(address: str, arguments: Sequence[str]) -> None:
    """Ask, wait, and end alike."""
    server: socket.socket | None = None
    early: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        if server is None:
            early.append(number)
        else:
            server.send(bytes([number]))

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    server = ask(address, arguments, environment=os.environ, most_bytes=most_bytes, files=(0, 1, 2))
    server.sendall(bytes(early))
    said = b""
    while part := server.recv(64):
        said += part
    status = int(said.split()[1])
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
