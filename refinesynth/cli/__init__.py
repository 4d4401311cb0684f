"""The command line: the only place that prints."""

from refinesynth.cli.app import app, main

__all__ = ["app", "main"]
