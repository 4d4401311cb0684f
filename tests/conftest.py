"""Settings for all tests: Hypothesis profiles, asyncio as the one event loop, no API keys, no network by accident."""

import gc
import os
import platform
import re
import signal
import sys
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings
from warm_python import warm_programs

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell; but the processes that tests start are to hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run in as many processes as there are cores, and each would start as many threads for its tiny matrices.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis imports this in the middle of a test, pytest compiles what it imports, and the compiler of CPython 3.11
# fails (SystemError: recursion depth mismatch) if the garbage collector finds a failed task just then.
with suppress(ImportError):
    import_module("hypothesis.internal.conjecture.optimiser")

settings.register_profile("fast", max_examples=20, deadline=None)
# The same examples in every run of the same code: what was green stays green; "fast" and "thorough" look for new ones.
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# Fewer of these, for `make test`.
settings.register_profile(
    "quick", max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


LAW = "law"
"""Tier of tests without a marker: in process, and without what `HEAVY` names."""
QUICK = "law and not long"
"""What `make test` runs of it."""
HEAVY = frozenset({"litellm", "ray", "torch"})
_STARTED = frozenset({"subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn"})
"""Audit events of a process that begins; what `multiprocessing` starts has none."""
_WHOLE_FILE = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.(process|train)\b", re.MULTILINE)
_running = ""
"""Name of the law that runs, in whatever thread."""
_laws_alone = False
"""Whether nothing but laws is collected: then their files import nothing heavy either."""


def pytest_configure(config: pytest.Config) -> None:
    global _laws_alone  # noqa: PLW0603 - as `_running`
    _laws_alone = config.option.markexpr in {LAW, QUICK}
    sys.addaudithook(_keep_light)
    sys.meta_path.insert(0, _Heavy)
    platform.processor()  # starts a process the first time, and HTTP clients ask for it


class _Heavy(PathFinder):
    """Makes a law fail that imports what takes seconds; to look whether it is installed is allowed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in HEAVY or not (_running or _laws_alone):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Refused()
        return spec


class _Refused(Loader):
    def exec_module(self, module: ModuleType) -> None:
        pytest.fail(f"a law imports {module.__name__}; mark the test `process` or `train`")


def _keep_light(event: str, arguments: tuple[object, ...]) -> None:
    """Make a law fail that starts a process."""
    if event in _STARTED and _running:
        pytest.fail(f"a law starts a process ({event}); mark the test `process`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _running  # noqa: PLW0603 - read where nothing is handed over: in an audit hook
    _running = item.nodeid if item.get_closest_marker(LAW) is not None else ""
    try:
        return (yield)
    finally:
        _running = ""


@pytest.fixture(autouse=True)
def _light(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no audit event tells: processes of `multiprocessing`."""

    def refuse(_: BaseProcess) -> None:
        _keep_light("subprocess.Popen", ())

    if request.node.get_closest_marker(LAW) is not None:
        monkeypatch.setattr(BaseProcess, "start", refuse)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test of the tier that is asked for: some take seconds to import."""
    tier: str = config.option.markexpr
    if tier not in {LAW, QUICK, "representative"} or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    wanted = "pytest.mark.representative" in text if tier == "representative" else _WHOLE_FILE.search(text) is None
    return None if wanted else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark laws, and begin with the files that take longest.

    Of a parametrised representative, the first case is one.
    """
    represented: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in represented:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "representative"]
        elif item.get_closest_marker("representative") is not None:
            represented.add(name)
        if "local_ray" in getattr(item, "fixturenames", ()):
            item.add_marker("process")
        if item.get_closest_marker("train") is None and item.get_closest_marker("process") is None:
            item.add_marker(LAW)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What is there by now stays: a trainer looks for garbage when it ends, and would go through all of it each
    time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_clients() -> Iterator[None]:
    """litellm keeps the clients of a loop that has ended for ten minutes, and then drops them with what they have open.

    So in whichever test came then, warnings of unclosed sockets were errors. They are dropped where they were used;
    what else a test leaves open is still told.
    """
    yield
    clients = getattr(sys.modules.get("litellm"), "in_memory_llm_clients_cache", None)
    if clients is None or not any(key.rpartition("-")[2].isdecimal() for key in clients.cache_dict):
        return
    _freeze_once()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        clients.flush_cache()
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Inspect leaves streams open. They are collected here, where their warnings are ignored, and not in a later test."""
    yield
    if "inspect_ai" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@cache
def _freeze_once() -> None:
    """litellm came after what was frozen, and is large: a look for garbage is not to go through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `python`, `refinesynth` and `torchrun` that have imported everything (see `warm_python`)."""
    mine = tmp_path_factory.getbasetemp()
    with warm_programs(mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) as folder:
        yield folder


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Ray on this machine, which takes seconds to start; runs with workers take what is there."""
    from refinesynth.synthesis.workers.cluster import Session

    session = Session(None, workers=4)
    session.ready.result()
    yield
    session.closing.set()
    session.thread.join()
    # Ray never asks how the processes have ended that it started.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
