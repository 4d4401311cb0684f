"""Which of several processes this one is, as torchrun tells it."""

import os


def rank() -> int:
    """This process's number over all machines; 0 alone writes and prints."""
    return int(os.environ.get("RANK", "0"))


def is_started() -> bool:
    """Whether somebody, torchrun say, has started this process as one of several."""
    return "RANK" in os.environ
