"""Replay of a run: its journal answers the same requests again, for free."""

import weakref
from dataclasses import replace
from pathlib import Path

from pydantic_ai.models import Model

from refinesynth.backends.names import ReplayedRun, journals, recorded_run
from refinesynth.backends.role import Role
from refinesynth.client.budget.price_table import free
from refinesynth.client.completion_parsing import ReadCompletion
from refinesynth.client.limiter.rate_limiter import limiter_of
from refinesynth.client.model import BackendModel
from refinesynth.client.routing import mixture
from refinesynth.client.session import Session, current_account
from refinesynth.client.unsupported_features import UnsupportedFeatures
from refinesynth.errors import EpisodeAbandoned, RunStopped
from refinesynth.journal import JournalReader, Recorded
from refinesynth.journal.journal_values import model_of

_STRANGERS = 3
"""Unknown episodes, before any known one, that indicate the wrong journal and stop the run."""


class Replay:
    """Completion function that reads answers from journals and sends no request.

    The id identifies an episode and the text identifies a request, so a replay needs the same personas, seed and
    prompts. Rules, bounds and judge may differ if the recorded run made their requests. A request gets the answer of
    its role and step, else (after a stricter rule, for example) an unused answer to the same text.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journals of the run in `folder`, which may be in progress."""
        self._folder = folder
        self._seed = ReplayedRun.read(folder).seed
        self._journals = [JournalReader(path) for path in journals(folder)]
        for journal in self._journals:
            weakref.finalize(self, journal.close)
        self._known: weakref.WeakKeyDictionary[Session, Recorded] = weakref.WeakKeyDictionary()
        """Recorded completions of each live session."""
        self._strangers: set[str] | None = set()
        """Episodes without a record; None after the first recorded episode."""

    async def __call__(self, **_: object) -> ReadCompletion:
        """Return the recorded answer to the current account's request.

        Raises:
            EpisodeAbandoned: The journals hold no answer.
            RunStopped: The journals hold none of the first episodes.
        """
        account = current_account()
        session, role = account.session, account.role
        if not session.id:
            raise EpisodeAbandoned("a replay answers requests of episodes only, and this one belongs to none")
        recorded = self._recorded(session)
        paid = recorded.take(role, session.step(role), account.digest)
        if paid is None:
            raise EpisodeAbandoned(
                f"the journal of {str(self._folder)!r} has no answer to request {session.step(role)} of the {role} in "
                f"episode {session.id}: it was not asked then, because rules, prompts or bounds are others or that run ended"
            )
        answer = ReadCompletion.from_paid(paid)
        return replace(answer, model=answer.model or model_of(paid.model))

    def lacks(self) -> UnsupportedFeatures:
        """Return the features that the servers of the recorded run lack."""
        features = UnsupportedFeatures()
        features.read(self._journals)
        return features

    def _recorded(self, session: Session) -> Recorded:
        known = self._known.get(session)
        if known is None:
            known = Recorded([paid for journal in self._journals for paid in journal.recorded(session.id)])
            if not known:
                self._complain(session.id)
            self._strangers = None
            self._known[session] = known
        return known

    def _complain(self, episode: str) -> None:
        nothing = (
            f"the journal of {str(self._folder)!r} knows nothing of episode {episode}. A replay needs the personas of that run in "
            f"the same order, and its seed, {self._seed}"
        )
        if self._strangers is not None:
            self._strangers.add(episode)
            if len(self._strangers) >= _STRANGERS:
                raise RunStopped(f"{nothing}; none of the first {_STRANGERS} episodes was found.")
        raise EpisodeAbandoned(nothing)


def open_replay(folder: Path, role: Role) -> Model:
    """Return the model that answers `role` from the journals of the run in `folder`; a mixture if the run's was one."""
    backend, replay = recorded_run(folder, role).backend(role), Replay(folder)
    # A replay sends no request and needs no limit.
    unhindered = limiter_of(backend, waits=False, batched=True)
    lacks = replay.lacks()
    return mixture(
        [BackendModel(one, call=replay, price=free, limiter=unhindered, lacks=lacks) for one in backend.members]
    )
