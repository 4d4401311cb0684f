"""Exceptions of refinesynth, in one class hierarchy.

A bad turn is data (a `Violation`), never an exception. An exception means that the work cannot continue. Its message
states the received value, the expected value and the remedy.
"""

from collections.abc import Generator
from contextlib import contextmanager


class RefinesynthError(Exception):
    """Base class of all errors of refinesynth."""


class InputError(RefinesynthError):
    """The user's input cannot be used: an option, a file, a rule name. The command line exits with 2."""


class ConfigurationError(InputError):
    """The description of a backend, prompt folder or rule chain is wrong, or a package is missing."""


class RunFolderError(InputError):
    """A run folder cannot be used: it is missing, damaged or in use, or holds other files or a run with other settings."""


class RuleFailed(RefinesynthError):
    """A rule raised an exception; a rule must never raise."""


class StorageError(RefinesynthError):
    """Storage failed: a full disk, a folder without write permission, or a journal that is damaged or of a newer version.

    Earlier commits stay. The command line exits with 3.
    """


class TrainingError(RefinesynthError):
    """Training cannot continue: memory is short, the loss is not finite, a checkpoint cannot be written or read."""


class BackendError(RefinesynthError):
    """A request to a model failed, after the retries that its kind of failure allows."""


class EpisodeAbandoned(BackendError):
    """One episode cannot continue: content policy, context too long, no valid answer. Other episodes continue."""


class EpisodeLost(EpisodeAbandoned):
    """The backend failed for this episode while it answered others; the failure says nothing about the data."""


class NoTools(EpisodeAbandoned):
    """The model does not support tool calls; the same request for text may succeed."""


class EpisodeDoubtful(EpisodeAbandoned):
    """The backend failed or refused the requests of this episode before its first usable answer to any request, or
    rejects one after the other since the last answer; its settings or its account may be the cause.
    """


class RunStopped(BackendError):
    """No episode can continue: authentication, unknown model, exhausted quota, a backend that stays down."""


class BudgetSpent(RunStopped):
    """The rest of the budget does not cover this request; it may cover cheaper requests, also of other episodes."""


class RulebookError(InputError):
    """A rulebook cannot be executed. The message tells its author, who may be an LLM, how to fix it."""


class Inapplicable(Exception):
    """An expression, lookup or effect cannot be applied in this state, or its result is not allowed.

    `World.step` catches it and reports it in the ruling.
    """


@contextmanager
def error_prefix(place: str) -> Generator[None]:
    """Add the part of the rulebook to an error's message."""
    try:
        yield
    except RulebookError as error:
        raise RulebookError(f"{place}: {error}") from None
