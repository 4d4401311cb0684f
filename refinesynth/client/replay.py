"""Answers from a run's journal: the same requests get the answers that were paid for then, for free."""

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
"""Episodes in a row, from the first, that are unknown to the journal before it is taken for the wrong one."""


class Replay:
    """Completion function that sends no request.

    An episode is identified by its id, a request by its words: the same personas, seed and prompts are needed. Rules,
    bounds and judge may differ, as long as their requests were made then. A request gets the answer of its place, or in
    another place (after a rule that refuses more) an unused answer to the same words.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journals of the run in `folder`, which may be in progress."""
        self._folder = folder
        self._seed = ReplayedRun.read(folder).seed
        self._journals = [JournalReader(path) for path in journals(folder)]
        for journal in self._journals:
            weakref.finalize(self, journal.close)
        self._known: weakref.WeakKeyDictionary[Session, Recorded] = weakref.WeakKeyDictionary()
        """Recorded completions of each session in play."""
        self._strangers: set[str] | None = set()
        """Episodes without a record; None once one was found."""

    async def __call__(self, **_: object) -> ReadCompletion:
        """Return the recorded answer to the current account's request.

        Raises:
            EpisodeAbandoned: There is none.
            RunStopped: There is none for any of the first episodes.
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
        """Return the lacks of the servers that were used then."""
        found = UnsupportedFeatures()
        found.read(self._journals)
        return found

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
    """Return the model that answers `role` from the journal of the run in `folder`; a mixture if that run mixed
    several.
    """
    backend, replay = recorded_run(folder, role).backend(role), Replay(folder)
    # No request is sent, so there is no limit to respect.
    unhindered = limiter_of(backend, waits=False, batched=True)
    lacks = replay.lacks()
    return mixture(
        [BackendModel(one, call=replay, price=free, limiter=unhindered, lacks=lacks) for one in backend.each]
    )
