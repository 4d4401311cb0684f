"""What became garbage when it was old is found in the end, however much was imported."""

import gc
import weakref
from collections.abc import Generator

import pytest

from refinesynth.synthesis import gc_tuning
from refinesynth.synthesis.gc_tuning import tune_gc


class Ring:
    """Holds on to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def _thresholds() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_thresholds")
def test_old_garbage_is_found_however_much_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("YOUNG", "MIDDLE", "OLD"):
        monkeypatch.setattr(gc_tuning, name, {"YOUNG": 1_000}.get(name, 2))
    imported = [Ring() for _ in range(100_000)]
    gc.collect()  # now they count as old
    tune_gc()
    rings = [Ring() for _ in range(100)]
    gc.collect(1)  # now these are old as well: no look among the young finds them
    left = [weakref.ref(ring) for ring in rings]
    del rings
    fresh = [Ring() for _ in range(20_000)]
    assert not any(ring() for ring in left)
    assert len(imported) > 4 * len(fresh)
    for ring in (*imported, *fresh):
        del ring.me  # what is frozen would stay until the process ends
