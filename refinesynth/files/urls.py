"""Recognition of URLs."""

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(value: object) -> bool:
    """Return whether this text names a place in an object store, such as `s3://bucket/runs/first`."""
    return isinstance(value, str) and _URL.match(value) is not None
