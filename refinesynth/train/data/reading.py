"""Reads conversations from training data of every kind."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from refinesynth.errors import InputError
from refinesynth.text.distinct import DistinctNames
from refinesynth.train.conversation import Conversation
from refinesynth.train.data import tables
from refinesynth.train.data.files import TRAJECTORIES, records
from refinesynth.train.data.mixing import Taken, labels, take_share, type_of_source, weighed
from refinesynth.train.data.shapes import ChatForm, read_record
from refinesynth.train.data.turn_labels import without_mistakes


class Reading(Iterator[Conversation]):
    """Conversations, one after the other; they are read when they are asked for."""

    def __init__(self, sources: Sequence[Any], *, without_refinement: bool, seed: int, form: ChatForm) -> None:
        pairs = [weighed(source) for source in sources]
        self._sources = [source for source, _ in pairs]
        self._seed = seed
        self._form: ChatForm = form
        self.taken = [Taken(name, weight) for name, (_, weight) in zip(labels(self._sources), pairs, strict=True)]
        """What became of each source; whole once all is read."""
        self.torn: list[str] = []
        """`file:line` of last lines that were cut off and left out; whole once all is read."""
        self.emptied = 0
        """Conversations of which nothing was left without mistakes."""
        self._names = DistinctNames()
        self._without_refinement = without_refinement
        self._opened: list[Generator[tuple[object, str]]] = []
        self._found = self._read()

    def __next__(self) -> Conversation:
        return next(self._found)

    def close(self) -> None:
        """Close what is open of the sources, where not all was read."""
        for each in (self._found, *self._opened):
            each.close()

    def open(self) -> Self:
        """Find every source now, and not when it is its turn to be read; a dataset of the hub is fetched.

        Raises:
            InputError: There is no such source.
        """
        if not self._opened:
            self._opened = [self._records(source, number) for number, source in enumerate(self._sources, start=1)]
        return self

    def _read(self) -> Generator[Conversation]:
        self.open()
        for source, opened, taken in zip(self._sources, self._opened, self.taken, strict=True):
            table = kind_of(source) in {"saved", "hub"} if isinstance(source, str | Path) else tables.is_dataset(source)
            found = self._found_in(opened, taken, table=table)
            for one in found if taken.weight == 1 else take_share(list(found), taken.weight, self._seed):
                taken.taken += 1
                kept = without_mistakes(one) if self._without_refinement else one
                if kept is None:
                    self.emptied += 1
                else:
                    yield kept

    def _found_in(self, opened: Iterator[tuple[object, str]], taken: Taken, *, table: bool) -> Iterator[Conversation]:
        for record, where in opened:
            found = record
            if not isinstance(found, Conversation):
                found = read_record(record, where, self._form, table=table)
            taken.found += 1
            taken.unmarked += not found.marked
            yield replace(found, id=self._names(found.id), source=taken.name)

    def _records(self, source: type_of_source, number: int) -> Generator[tuple[object, str]]:
        if isinstance(source, str | Path):
            return self._named(source)
        if tables.is_dataset(source):
            return tables.rows(source, f"dataset {number}")
        if not isinstance(cast("Any", source), Iterable):
            raise InputError(f"source {number} is {type(source).__name__}; expected a path, a dataset or trajectories")
        return ((item, f"source {number}: item {at}") for at, item in enumerate(source, start=1))

    def _named(self, source: str | Path) -> Generator[tuple[object, str]]:
        match kind_of(source):
            case "run":
                return records(Path(source) / TRAJECTORIES, self.torn)
            case "file":
                return records(Path(source), self.torn)
            case "saved":
                return tables.saved(Path(source))
            case "hub":
                return tables.from_hub(tables.hub_name(str(source)))


def kind_of(source: str | Path) -> Literal["run", "file", "saved", "hub"]:
    """What a source is by its name; nothing is read, and no hub is asked.

    `a/b` that is not here is a dataset of the hub, unless there is a folder `a` here: then `b` was meant to be in it.

    Raises:
        InputError: It is not here, and a hub can have no such name.
    """
    path = Path(source)
    if path.is_dir():
        if (path / TRAJECTORIES).is_file():
            return "run"
        if tables.is_saved(path):
            return "saved"
        raise InputError(
            f"{str(source)!r} is a folder without {TRAJECTORIES} and no saved dataset; give a run folder, a file of JSON lines, "
            "or a folder that `save_to_disk` wrote"
        )
    if path.exists():
        return "file"
    hub = ""
    if isinstance(source, str) and tables.is_hub_name(source):
        if tables.hub_name(source) != source or not path.parent.is_dir():
            return "hub"
        hub = f" (one of this name on the Hugging Face Hub is {tables.HUB_DATASETS}{source})"
    raise InputError(
        f"there is no file or folder {str(source)!r}; give a run folder, an exported file or a dataset{hub}"
    )


def read_conversations(
    sources: Sequence[Any] | str | Path,
    *,
    without_refinement: bool = False,
    seed: int = 0,
    form: ChatForm = "react",
) -> Reading:
    """The conversations of all sources, in order, each read when it is asked for; a source that has a weight, as its
    turn comes.

    A source is a run folder, a file of JSON lines or a JSON list (`.gz` and `.zst` too) in any of our export forms or
    another that `shapes` knows, a Hugging Face dataset (an object, a folder of `save_to_disk`, or `hf://datasets/organisation/name`, short `organisation/name`), or
    an iterable of trajectories, records or conversations. Forms are recognised by their keys; see `shapes`. A weight
    (`runs/b:0.3`, or the pair of a source and a number) is the share of its conversations that is taken, drawn by
    `seed`; see `mixing`. Conversations of one id are numbered.

    `without_refinement` takes mistakes and the answers to them out (the paper's ablation), of those that the weights
    take; see `turn_labels.without_mistakes`. `form` is that in which trajectories become messages; exported ones have
    theirs.

    Raises:
        InputError: A weight is no number above 0. While reading: there is no such source, or a record is not sound;
            with file and line.
    """
    named = [sources] if isinstance(sources, str | Path) else sources
    return Reading(named, without_refinement=without_refinement, seed=seed, form=form)
