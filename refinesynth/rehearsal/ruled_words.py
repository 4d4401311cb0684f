"""Sentences for what an executed world has ruled, in several forms each; they name nothing but the action."""

from random import Random

_MORE = ("", "", "", "Nothing else changes.", "That is all.", "All else is as before.", "Nothing more happens.")
_HINDERED = (
    "It does not work this time. Something sticks for a moment, and all stays as it was.",
    "Something slips just then, and the attempt comes to nothing. It may well work when it is tried again.",
    "For a moment nothing responds. Nothing has changed, and it is worth another try.",
    "It is interrupted before anything comes of it. That seems to be a passing thing.",
    "A short hiccup: this time it does not work, and nothing has changed.",
    "There is a hitch and the attempt fails this time. All is as before.",
)
_PASSING = (
    'The action "{action}" is right, but it fails for a moment. Nothing changes.',
    'Nothing is wrong with "{action}"; by chance it does not work this time, and all stays as it is.',
    'By chance "{action}" comes to nothing now. The state is the same as before.',
)
_ALLOWED = (
    'The action "{action}" is carried out, with what follows from it.',
    'All that "{action}" needs holds, so it happens.',
    'Form, place and state allow "{action}".',
    'Nothing stands against "{action}", and it takes effect.',
)
_DONE = (
    "It works: you {action}.",
    "You manage to {action}.",
    "You {action}, and it works.",
)
_UNDONE = (
    "Nothing happens. It does not work.",
    "You try to {action}, but it fails.",
    "That does not work. Nothing happens.",
)


def fresh(rng: Random, text: str) -> str:
    """What is perceived of an action that was carried out."""
    return f"{text} {rng.choice(_MORE)}".rstrip()


def hindered(rng: Random) -> str:
    """What is perceived of a right action that failed for a moment."""
    return rng.choice(_HINDERED)


def passing(rng: Random, action: str) -> str:
    """The DungeonMaster on a right action that failed for a moment."""
    return rng.choice(_PASSING).format(action=action)


def allowed(rng: Random, action: str) -> str:
    """The DungeonMaster on an action that was carried out."""
    return rng.choice(_ALLOWED).format(action=action)


def done(rng: Random, action: str) -> str:
    """An announcement of success."""
    return rng.choice(_DONE).format(action=action)


def undone(rng: Random, action: str) -> str:
    """An announcement of failure."""
    return rng.choice(_UNDONE).format(action=action)
