"""Settings for all tests: Hypothesis profiles, asyncio as the one event loop, no API keys, no network by accident."""

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell; but the processes that tests start are to hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run in as many processes as there are cores, and each would start as many threads for its tiny matrices.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis imports this in the middle of a test, pytest compiles what it imports, and the compiler of CPython 3.11 fails
# (SystemError: recursion depth mismatch) if the garbage collector finds a failed task just then.
with suppress(ImportError):
    import_module("hypothesis.internal.conjecture.optimiser")

settings.register_profile("fast", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Leave a test that is marked so, and the processes that it starts, out of the measuring of coverage.

    CPython 3.11 is two to three times slower while it is measured. What whole programs reach, and laws with their hundreds of
    examples, is thus not counted: the figure says how much the other tests reach.
    """
    tracing, in_threads = sys.gettrace(), threading.gettrace()
    if item.get_closest_marker("unmeasured") is None or tracing is None:
        return (yield)
    started = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    sys.settrace(None)
    threading.settrace(None)  # pyright: ignore[reportArgumentType]
    try:
        return (yield)
    finally:
        if started is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = started
        sys.settrace(tracing)
        threading.settrace(in_threads)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE")):
            monkeypatch.delenv(name)
