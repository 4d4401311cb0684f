"""Command line. No other package prints."""

from refinesynth.cli.app import app, main

__all__ = ["app", "main"]
