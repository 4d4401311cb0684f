"""Rank of a training process. Imports no torch."""

import os
import socket


def rank() -> int:
    """Number of this process over all machines; rank 0 reports and prints."""
    return int(os.environ.get("RANK", "0"))


def is_launched() -> bool:
    """Return True if torchrun started this process as a rank."""
    return "RANK" in os.environ


def free_port() -> int:
    """A free local port, for the rendezvous of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
