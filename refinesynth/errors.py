"""Everything that refinesynth raises on purpose, in one tree.

A bad turn is data (a `Violation`), never an exception. These are for the cases in which the work itself cannot go on;
each message says what was got, what was expected and what to do.
"""


class RefinesynthError(Exception):
    """Base of all errors that refinesynth raises on purpose."""


class InputError(RefinesynthError):
    """Something that the user gave cannot be used: an option, a file, a rule name. The command line exits with 2."""


class ConfigurationError(InputError):
    """A backend, prompt folder or rule chain is described wrongly."""


class RunFolderError(InputError):
    """The output folder cannot be used: it is in use, holds other files or a run with other settings, or cannot be written."""


class RuleFailed(RefinesynthError):
    """A rule of the user's own raised, which no rule may."""


class StorageError(RefinesynthError):
    """A write of a run failed: a full disk, a folder that may not be written, a damaged journal or one of a newer
    version.

    Everything that was committed before stays. The command line exits with 3.
    """


class TrainingError(RefinesynthError):
    """A training cannot go on: memory is short, the loss is no number, a checkpoint cannot be written or read."""


class BackendError(RefinesynthError):
    """A request to a model failed for good, after the retries that its kind allows."""


class EpisodeAbandoned(BackendError):
    """This episode cannot go on, others can: content policy, context too long, answers that never became valid."""


class EpisodeLost(EpisodeAbandoned):
    """The backend kept failing over this episode while it answered others, so nothing is known of what it would have
    given.
    """


class NoTools(EpisodeAbandoned):
    """A model that is asked to call one of several functions takes no tools; it may be asked for text."""


class EpisodeDoubtful(EpisodeAbandoned):
    """The backend refused the requests of this episode or gave no usable answer, and has not given a usable answer to
    any request yet, so its settings may be the cause.
    """


class RunStopped(BackendError):
    """No episode can go on: authentication, unknown model, exhausted quota, a backend that stays down."""


class BudgetSpent(RunStopped):
    """The rest of the budget does not pay for this request; cheaper ones, and those of other episodes, may still be
    paid.
    """
