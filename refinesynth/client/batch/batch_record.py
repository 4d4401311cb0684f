"""Record of the batches of a run: committed to the journal before a batch is sent, so no request is sent twice."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ValidationError

from refinesynth.errors import StorageError
from refinesynth.journal import BATCHES, Journal


class Batch(BaseModel, frozen=True, extra="forbid"):
    """A batch, recorded before it is sent."""

    key: str
    """Sent with the batch; identifies a batch whose id was not recorded."""
    made: AwareDatetime | None = None
    """Time of the record; None in earlier versions."""
    id: str | None = None
    """The provider's id; None if it may not have been sent."""
    requests: tuple[str, ...] = ()
    """Ids of its requests."""


class BatchRecord:
    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._batches: list[Batch] = []
        self._sent_in: dict[str, int] = {}

    def open(self, journal: Journal) -> None:
        """Read the batches of earlier processes of the run."""
        self._journal = journal
        try:
            for number in range(int(journal.note(BATCHES) or 0)):
                self._learn(number, Batch.model_validate_json(journal.note(_name(number)) or b""))
        except (ValidationError, ValueError) as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its notes on batches") from error

    @property
    def ids(self) -> set[str | None]:
        """Known provider's ids of all batches."""
        return {batch.id for batch in self._batches}

    def __getitem__(self, number: int) -> Batch:
        return self._batches[number]

    def batch_of(self, request: str) -> int | None:
        """Return the number of the batch with this request, if its answers were not read yet."""
        return self._sent_in.get(request)

    async def begin(self, key: str, requests: Sequence[str]) -> int:
        """Record a batch that is sent now; return its number."""
        number = len(self._batches)
        await self.change(number, Batch(key=key, made=datetime.now(UTC), requests=tuple(requests)))
        return number

    async def change(self, number: int, batch: Batch) -> None:
        """Record a change of a batch."""
        self._learn(number, batch)
        if self._journal is not None:
            await self._journal.keep_note(_name(number), batch.model_dump_json().encode())
            await self._journal.keep_note(BATCHES, str(len(self._batches)).encode())

    def read(self, number: int) -> None:
        """Note that its answers were read in this process: a repeated request is a new one."""
        for request in self._batches[number].requests:
            if self._sent_in.get(request) == number:
                del self._sent_in[request]

    def _learn(self, number: int, batch: Batch) -> None:
        if number == len(self._batches):
            self._batches.append(batch)
        else:
            self.read(number)
            self._batches[number] = batch
        # One that was made again is in a later batch.
        self._sent_in |= {name: max(number, self._sent_in.get(name, number)) for name in batch.requests}


def _name(number: int) -> str:
    return f"batch {number}"
