"""The rehearsal in this process, where it is known which episode asks: what it remembers of a scene goes with the
episode.
"""

from dataclasses import dataclass
from typing import Any

from refinesynth.client.account import current_account
from refinesynth.client.session import Session, SessionAccount
from refinesynth.rehearsal import Rehearsal
from refinesynth.rehearsal.memory import Scenes, among, scenes
from refinesynth.trajectory.weak_cache import weakly_cached


@dataclass(frozen=True)
class Rehearsing:
    """A completion function that answers as the rehearsal does."""

    rehearsal: Rehearsal

    async def __call__(self, **request: Any) -> dict[str, Any]:
        """See `Rehearsal`."""
        account = current_account()
        if not isinstance(account, SessionAccount):
            return await self.rehearsal(**request)
        with among(_scenes_of(account.session)):
            return await self.rehearsal(**request)


@weakly_cached
def _scenes_of(_session: Session) -> Scenes:
    return scenes()
