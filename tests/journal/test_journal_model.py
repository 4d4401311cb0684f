"""Whatever is done to a journal, it says what a plain model of it says: at once, to others, and after it was opened
again."""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_records import committed, count_paid, episode, held, paid

from refinesynth.journal import Entry, Journal, JournalReader, PaidCompletion


@dataclass(frozen=True)
class Keep:
    places: list[tuple[int, int, str]]
    """Index, step, role."""


@dataclass(frozen=True)
class Commit:
    episodes: int


@dataclass(frozen=True)
class Hold:
    ahead: list[int]


@dataclass(frozen=True)
class Forget:
    start: int


@dataclass(frozen=True)
class OpenAgain:
    pass


Step: TypeAlias = Keep | Commit | Hold | Forget | OpenAgain

places = st.tuples(st.integers(0, 6), st.integers(0, 2), st.sampled_from(["player", "writer"]))
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(Keep, st.lists(places, min_size=1, max_size=40)),
        st.builds(Commit, st.integers(1, 3)),
        st.builds(Hold, st.lists(st.integers(0, 5), min_size=1, max_size=3)),
        st.builds(Forget, st.integers(0, 8)),
        st.builds(OpenAgain),
    ),
    max_size=15,
)


@dataclass
class Model:
    """A journal without a disk."""

    paid: dict[tuple[str, str, int], PaidCompletion] = field(default_factory=dict[tuple[str, str, int], PaidCompletion])
    entries: dict[int, Entry] = field(default_factory=dict[int, Entry])
    totals: bytes | None = None

    @property
    def count(self) -> int:
        return sum(not entry.is_held for entry in self.entries.values())


async def play(journal: Journal, model: Model, step: Step) -> None:
    match step:
        case Keep(places=where):
            kept = [paid(index, number, role=role) for index, number, role in where]
            async with anyio.create_task_group() as group:
                for one in kept:
                    group.start_soon(journal.keep, one)
            for one in kept:
                model.paid.setdefault((one.episode, one.role, one.step), one)
        case Commit(episodes=count):
            entries = [committed(model.count + more) for more in range(count)]
            model.totals = b"%d" % model.count
            await journal.enter(entries, totals=model.totals)
            model.entries.update((entry.index, entry) for entry in entries)
        case Hold(ahead=ahead):
            entries = [held(model.count + more) for more in ahead]
            await journal.enter(entries)
            model.entries.update((entry.index, entry) for entry in entries)
        case Forget(start=start):
            journal.forget_from(start, totals=None)
            model.totals = None
            model.entries = {index: entry for index, entry in model.entries.items() if index < start}
        case OpenAgain():
            pass


def agree(reader: JournalReader, model: Model) -> None:
    everything = [model.entries[index] for index in sorted(model.entries)]
    assert [reader.entry(entry.index) for entry in reader.entries()] == everything
    assert reader.held_indices() == [entry.index for entry in everything if entry.is_held]
    assert reader.committed.count == model.count
    assert reader.totals == model.totals
    assert count_paid(reader) == len(model.paid)
    assert {row.role: row.requests for row in reader.spent()} == Counter(one.role for one in model.paid.values())
    for index in range(7):
        recorded = {(one.episode, one.role, one.step): one for one in reader.record_of(episode(index))}
        assert recorded == {key: one for key, one in model.paid.items() if one.index == index}
    assert reader.next_index() == 1 + max([*model.entries, *(one.index for one in model.paid.values()), -1])
    begun = {one.index for one in model.paid.values()}
    assert [row.index for row in reader.outstanding()] == sorted(begun - set(model.entries) - set(range(model.count)))


@settings(max_examples=settings().max_examples // 2)
@given(steps)
def test_a_journal_says_what_its_model_says(done: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        model = Model()
        journal = Journal(path)
        try:
            for step in done:
                if isinstance(step, OpenAgain):
                    journal.close()
                    journal = Journal(path)
                anyio.run(play, journal, model, step)
                agree(journal, model)
            with JournalReader(path) as beside:
                agree(beside, model)
        finally:
            journal.close()
        with JournalReader(path) as afterwards:
            agree(afterwards, model)
