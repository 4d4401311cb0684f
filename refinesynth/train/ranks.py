"""Which of several processes this one is, as the environment says."""

import os


def rank() -> int:
    """This process's number over all machines; 0 alone writes and prints."""
    return int(os.environ.get("RANK", "0"))


def is_launched() -> bool:
    """Whether this process was started as one of several, by torchrun for one."""
    return "RANK" in os.environ
