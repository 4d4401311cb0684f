"""Marks of tests in which Inspect plays."""

import pytest

INSPECT = [
    pytest.mark.process,
    # Inspect leaves the loop's and its own sockets to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # Of Inspect, to tenacity.
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
]
