"""Log records about a backend, with facts for a run's events.jsonl."""

import logging

from refinesynth.backends.backend import Backend

LOG = logging.getLogger("refinesynth.backends")
# As libraries do: silent until someone configures logging. Without this Python prints warnings to stderr.
LOG.addHandler(logging.NullHandler())


def report(event: str, backend: Backend, text: str, *, level: int = logging.WARNING, **facts: object) -> None:
    """Log a text, and its facts as an event."""
    LOG.log(level, "%s", text, extra={"facts": {"event": event, "backend": backend.label, **facts, "text": text}})
