"""What the command line prints of others' text."""

from refinesynth.printable import one_line, printable

__all__ = ["one_line", "printable"]
