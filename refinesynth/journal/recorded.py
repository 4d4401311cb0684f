"""What was paid for one episode, to play it again without paying."""

from collections.abc import Iterator, Sequence

from refinesynth.journal.paid import Paid


class Recorded:
    """The paid completions of one episode, in the order in which they were committed.

    A snapshot: what is committed later is not in it.
    """

    def __init__(self, paid: Sequence[Paid] = ()) -> None:
        self._paid = {(one.role, one.step, one.digest): one for one in paid}
        self._unused: dict[bytes, dict[tuple[str, int], Paid]] = {}
        for one in self._paid.values():
            self._unused.setdefault(one.digest, {})[one.role, one.step] = one

    def __iter__(self) -> Iterator[Paid]:
        return iter(self._paid.values())

    def __len__(self) -> int:
        return len(self._paid)

    def get(self, role: str, step: int, digest: bytes) -> Paid | None:
        """What this request at this place was answered with; None if it was not made."""
        return self._paid.get((role, step, digest))

    def take(self, role: str, step: int, digest: bytes) -> Paid | None:
        """What this request at this place was answered with, or else the first answer to it at any other place that is
        left.

        Each is handed out once, also where an episode asks the same more than once. For playing under other rules,
        where the same request may come earlier or later.
        """
        left = self._unused.get(digest)
        if not left:
            return None
        place = (role, step)
        return left.pop(place if place in left else next(iter(left)))
