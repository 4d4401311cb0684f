"""Log records about a backend, with facts for a run's events.jsonl; removal of keys from texts."""

import json
import logging
import os
import re
from urllib.parse import quote

from refinesynth.backends.backend import Backend

LOG = logging.getLogger("refinesynth.backends")
# Without a handler, Python prints warnings to stderr until the application configures logging.
LOG.addHandler(logging.NullHandler())


def report(event: str, backend: Backend, text: str, *, level: int = logging.WARNING, **facts: object) -> None:
    """Log a text, with its facts as an event."""
    LOG.log(level, "%s", text, extra={"facts": {"event": event, "backend": backend.label, **facts, "text": text}})


_SECRET_NAME = re.compile(r"(_KEY|_TOKEN|_SECRET|_PASSWORD|_CREDENTIALS)$", re.IGNORECASE)
_MIN_CHARS = 8
"""Minimum length of a key; replacing shorter values would garble the text."""
_KEY_SHAPES = re.compile(r"\b(?:sk|rk|pk|gsk|xai|hf|AIza)[-_][A-Za-z0-9_\-*]{12,}|(?<=Bearer )[^\s\"']{8,}")
"""Shapes of keys that no environment variable holds, or that a server echoes in part."""


def redact(text: str, *, key: str | None = None) -> str:
    """Return `text` without `key`, values of environment variables named like secrets, and texts shaped like keys.

    Keys are also found in the spellings of JSON, URLs and Python.
    """
    secrets = {value for name, value in os.environ.items() if len(value) >= _MIN_CHARS and _SECRET_NAME.search(name)}
    if key is not None and len(key) >= _MIN_CHARS:
        secrets.add(key)
    # Longest first: one key may begin with another.
    for spelling in sorted({form for secret in secrets for form in _spellings(secret)}, key=len, reverse=True):
        text = text.replace(spelling, "***")
    return _KEY_SHAPES.sub("***", text)


def _spellings(secret: str) -> tuple[str, ...]:
    # Python's JSON does not escape slashes, other encoders do; URLs may or may not quote them.
    urls = (quote(secret, safe="", errors="replace"), quote(secret, errors="replace"))
    text = json.dumps(secret)[1:-1]
    return (secret, text, text.replace("/", "\\/"), repr(secret)[1:-1], *urls)
