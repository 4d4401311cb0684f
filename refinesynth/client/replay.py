"""Replay of a run: its journal answers the same requests again, for free."""

import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic_ai.models import Model

from refinesynth.backends.names import ReplayedRun, journal_of, recorded_run
from refinesynth.backends.role import Role
from refinesynth.client.budget.price_table import free
from refinesynth.client.completion_parsing import ReadCompletion
from refinesynth.client.limiter.rate_limiter import limiter_of
from refinesynth.client.model import BackendModel
from refinesynth.client.routing import mixture
from refinesynth.client.session import Session, current_request
from refinesynth.client.unsupported_features import UnsupportedFeatures
from refinesynth.errors import EpisodeAbandoned, RunStopped
from refinesynth.journal import EpisodeRecord, JournalReader
from refinesynth.journal.journal_values import model_of

_MAX_UNKNOWN = 3
"""Unknown episodes, before any known one, that indicate the wrong journal and stop the run."""


class Replay:
    """Completion function that reads answers from a run's journal and sends no request.

    The id identifies an episode and the text identifies a request, so a replay needs the same personas, seed and
    prompts. Rules, bounds and judge may differ if the recorded run made their requests. A request gets the answer of
    its role and step, else (after a stricter rule, for example) an unused answer to the same text.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journal of the run in `folder`, which may be in progress."""
        self._folder = folder
        self._seed = ReplayedRun.read(folder).seed
        self.journal = JournalReader(journal_of(folder))
        weakref.finalize(self, self.journal.close)
        self._records: weakref.WeakKeyDictionary[Session, EpisodeRecord] = weakref.WeakKeyDictionary()
        """Recorded completions of each live session."""
        self._unknown_episodes: set[str] | None = set()
        """Episodes without a record; None after the first recorded episode."""

    async def __call__(self, **_: object) -> ReadCompletion:
        """Return the recorded answer to the current account's request.

        Raises:
            EpisodeAbandoned: The journal holds no answer.
            RunStopped: The journal holds none of the first episodes.
        """
        context = current_request()
        session, role = context.session, context.role
        if not session.id:
            raise EpisodeAbandoned("a replay answers requests of episodes only, and this one belongs to none")
        record = self._record_of(session)
        paid = record.take(role, session.step(role), context.digest)
        if paid is None:
            raise EpisodeAbandoned(
                f"the journal of {str(self._folder)!r} has no answer to request {session.step(role)} of the {role} in "
                f"episode {session.id}: it was not asked then, because rules, prompts or bounds are others or that run ended"
            )
        answer = ReadCompletion.from_paid(paid)
        return replace(answer, model=answer.model or model_of(paid.model))

    def _record_of(self, session: Session) -> EpisodeRecord:
        record = self._records.get(session)
        if record is None:
            record = self.journal.record_of(session.id)
            if not record:
                self._raise_unknown(session.id)
            self._unknown_episodes = None
            self._records[session] = record
        return record

    def _raise_unknown(self, episode: str) -> None:
        message = (
            f"the journal of {str(self._folder)!r} knows nothing of episode {episode}. A replay needs the personas of that run in "
            f"the same order, and its seed, {self._seed}"
        )
        if self._unknown_episodes is not None:
            self._unknown_episodes.add(episode)
            if len(self._unknown_episodes) >= _MAX_UNKNOWN:
                raise RunStopped(f"{message}; none of the first {_MAX_UNKNOWN} episodes was found.")
        raise EpisodeAbandoned(message)


def open_replay(folder: Path, role: Role) -> Model:
    """Return the model that answers `role` from the journal of the run in `folder`; a mixture if the run's was one."""
    backend, replay = recorded_run(folder, role).backend(role), Replay(folder)
    # A replay sends no request and needs no limit.
    limiter = limiter_of(backend, waits=False, batched=True)
    unsupported = UnsupportedFeatures()
    unsupported.read(replay.journal)
    answering = partial(BackendModel, call=replay, price=free, limiter=limiter, unsupported=unsupported)
    return mixture([answering(item) for item in backend.members])
