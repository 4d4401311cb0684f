"""What is remembered of an object goes with it."""

import gc
import weakref

import pytest

from refinesynth.trajectory import value
from refinesynth.trajectory.value import weakly_cached


class Thing:
    """Equal to all of its kind, and not hashable."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)


class Made:
    """What is made of a thing."""


ALIVE = weakref.WeakSet[Made]()


@weakly_cached
def made_of(_thing: Thing) -> Made:
    made = Made()
    ALIVE.add(made)
    return made


def test_it_is_made_once_of_each_object_and_goes_with_it() -> None:
    one, other = Thing(), Thing()
    made = weakref.ref(made_of(one))
    assert made_of(one) is made()
    assert made_of(other) is not made()
    gc.disable()
    try:
        del one
        assert made() is None
        assert len(ALIVE) == 1
        for _ in range(100):
            # Objects that come and go have the same few ids.
            made_of(Thing())
        assert len(ALIVE) == 1
        made_of(other)
    finally:
        gc.enable()


def test_no_more_than_so_many_are_remembered_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value, "MAX_ENTRIES", 3)
    asked: list[int] = []

    @weakly_cached
    def count(thing: Thing) -> int:
        asked.append(id(thing))
        return len(asked)

    things = [Thing() for _ in range(5)]
    assert [count(thing) for thing in things] == [1, 2, 3, 4, 5]
    assert [count(thing) for thing in things[2:]] == [3, 4, 5]
    assert count(things[0]) == 6
