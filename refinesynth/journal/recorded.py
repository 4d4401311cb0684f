"""What was paid for one episode, to play it again without paying."""

from collections.abc import Iterator, Sequence

from refinesynth.journal.paid import Paid


class Recorded:
    """The paid completions of one episode, in the order in which they were committed.

    A snapshot: what is committed later is not in it.
    """

    def __init__(self, paid: Sequence[Paid] = ()) -> None:
        self._paid = {(one.role, one.step, one.digest): one for one in paid}
        self._unused: dict[bytes, list[Paid]] = {}
        for one in reversed(self._paid.values()):
            self._unused.setdefault(one.digest, []).append(one)

    def __iter__(self) -> Iterator[Paid]:
        return iter(self._paid.values())

    def __len__(self) -> int:
        return len(self._paid)

    def get(self, role: str, step: int, digest: bytes) -> Paid | None:
        """What this request at this place was answered with; None if it was not made."""
        return self._paid.get((role, step, digest))

    def find(self, digest: bytes) -> Paid | None:
        """What this request was answered with at any place, each answer handed out once, in their order.

        For playing under other rules, where the same request may come earlier or later.
        """
        left = self._unused.get(digest)
        return left.pop() if left else None
