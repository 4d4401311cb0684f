"""Sentences of player and DungeonMaster, in several forms each."""

from collections.abc import Mapping
from random import Random

from refinesynth.trajectory import MistakeKind

_SETTING_OUT = (
    "I have to {goal}.",
    "What is asked of me is to {goal}.",
    "The goal is clear: {goal}.",
    "Let me think. In the end I should {goal}.",
    "So, the task is to {goal}.",
)
_GOING_ON = ("That worked.", "Good.", "One step further.", "As hoped.", "Fine, that is done.", "So far, so good.", "")
_OBSTRUCTED = (
    "My aim is to {then}. {hint} So I {doing} first.",
    "I would like to {then}, but that cannot be done yet. {hint} Therefore I {doing} now.",
    "{hint} So before I can {then}, I have to {doing}.",
)
_NEEDED = (
    "Before I can {then}, I need to {doing}.",
    "To {then}, I first have to {doing}.",
    "Next I {doing}; only then can I {then}.",
)
_USEFUL = (
    "I {doing} now and {then} afterwards.",
    "The next thing is to {doing}; after that I will {then}.",
    "Now I can {doing}, and then {then}.",
    "I should {doing}. What follows is to {then}.",
)
_LAST = (
    "All that is left is to {doing}.",
    "Only one thing is missing: I {doing}.",
    "With one more act the goal is reached: I {doing}.",
    "Now I {doing}, and that should be all.",
)
_NOTHING_LEFT = (
    "Everything that I was asked for seems to be done. I {doing} to make sure.",
    "I cannot think of anything that is missing, so I {doing}.",
    "As far as I can tell this is finished; I {doing} once more.",
)
_CAREFUL = ("I {doing} before I go on.", "To find out more, I {doing}.", "Perhaps it helps to {doing} first.")
_CONFIDENT: Mapping[MistakeKind, tuple[str, ...]] = {
    MistakeKind.PARAMETER: (
        "Next I {doing}.",
        "Now it is time to {doing}.",
        "I know what to do: {doing}.",
        "The obvious thing now is to {doing}.",
    ),
    MistakeKind.PLACE: (
        "I can {doing} right from here.",
        "As I remember it, I am in the right spot, so I {doing}.",
        "No need to go anywhere else: I {doing}.",
        "I {doing} straight away, that saves a walk.",
    ),
    MistakeKind.LOGIC: (
        "Nothing speaks against it, so I {doing}.",
        "Now I {doing}, as the goal wants it.",
        "I think that everything is ready, so I {doing}.",
        "To be on the safe side I {doing}.",
    ),
}
_UNDERSTOOD: Mapping[MistakeKind, tuple[str, ...]] = {
    MistakeKind.PARAMETER: (
        "I wrote that in a way that is not available. {hint}",
        "The action was not worded right. {hint}",
        "That was not understood. {hint}",
        "My wording was off. {hint}",
    ),
    MistakeKind.PLACE: (
        "I was not where I thought I was. {hint}",
        "Wrong place. {hint}",
        "I tried that from the wrong spot. {hint}",
        "{hint} I misjudged where I am.",
    ),
    MistakeKind.LOGIC: (
        "I overlooked something. {hint}",
        "{hint} I should have seen that.",
        "I got ahead of myself. {hint}",
        "That could not work. {hint}",
    ),
}
_PUZZLED = (
    "That was refused, though I see nothing wrong with it.",
    "I do not understand why that was refused.",
    "Strange, that should have worked.",
)
_UNLUCKY = (
    "That was right, it only failed this once. I try it again.",
    "Bad luck, nothing more. Once again.",
    "There is nothing wrong with what I did, so I do the same again.",
    "That can happen. I give it another try.",
)
_CARRIED_OUT = (
    "The player wants to {doing}. Everything that this needs holds, so it happens.",
    'The action "{action}" is available and nothing stands against it.',
    "Form, place and state allow the player to {doing}.",
    "The player is right to try to {doing}: all requirements are met.",
)
_PROGRESS = (
    "Of the conditions, {met} of {all} hold now.",
    "By now {met} of {all} conditions hold.",
    "So far, {met} of {all} conditions are met.",
)
_DONE = (
    "With this every condition holds.",
    "Now all conditions hold, so the goal is reached.",
    "Nothing is left to do.",
)
_REFUSED: Mapping[MistakeKind, tuple[str, ...]] = {
    MistakeKind.PARAMETER: (
        'The player writes "{action}", which is no available action with available values. Nothing changes.',
        '"{action}" fits none of the available actions. That is an error of form.',
    ),
    MistakeKind.PLACE: (
        'The player tries "{action}" from the wrong place. {hint} Nothing changes.',
        'The form of "{action}" is right, the place is not. {hint}',
    ),
    MistakeKind.LOGIC: (
        'In the present state "{action}" makes no sense. {hint} Nothing changes.',
        'The form of "{action}" is right, but it cannot be done now. {hint}',
    ),
}
_MISREAD = (
    '"{action}" does not look like an available action to me, so it is not carried out.',
    'I find no available form for "{action}". That is an error of form.',
)
_WAVED = ('"{action}" is close enough to what is available.', 'I see what "{action}" means and let it pass.')


def last(rng: Random, doing: str) -> str:
    """Why to do this now, if nothing is to be done after it."""
    return rng.choice(_LAST).format(doing=doing)


def useful(rng: Random, *, doing: str, then: str) -> str:
    """Why to do this now, if what comes then could be done at once as well."""
    return rng.choice(_USEFUL).format(doing=doing, then=then)


def needed(rng: Random, *, doing: str, then: str, obstacle: str) -> str:
    """Why to do this now, if what comes then is not possible yet. The obstacle is left out where it is empty."""
    ways = (*_OBSTRUCTED, *_NEEDED) if obstacle else _NEEDED
    return rng.choice(ways).format(doing=doing, then=then, hint=obstacle)


def setting_out(rng: Random, goal: str) -> str:
    """The first thought."""
    return rng.choice(_SETTING_OUT).format(goal=goal)


def going_on(rng: Random) -> str:
    """After something that worked; may be empty."""
    return rng.choice(_GOING_ON)


def careful(rng: Random, doing: str) -> str:
    """When the right thing was refused."""
    return rng.choice(_CAREFUL).format(doing=doing)


def nothing_left(rng: Random, doing: str) -> str:
    """When there is no plan any more."""
    return rng.choice(_NOTHING_LEFT).format(doing=doing)


def confident(rng: Random, kind: MistakeKind, doing: str) -> str:
    """What somebody thinks who does not know that this is a mistake."""
    return rng.choice(_CONFIDENT[kind]).format(doing=doing)


def understood(rng: Random, kind: MistakeKind | None, hint: str) -> str:
    """After a mistake: what was wrong; with no kind, nothing was."""
    return rng.choice(_PUZZLED) if kind is None else rng.choice(_UNDERSTOOD[kind]).format(hint=hint)


def unlucky(rng: Random) -> str:
    """After something right that failed for a moment."""
    return rng.choice(_UNLUCKY)


def carried_out(rng: Random, *, action: str, doing: str, met: int, total: int) -> str:
    """The DungeonMaster on an action that is right."""
    judgement = rng.choice(_CARRIED_OUT).format(action=action, doing=doing)
    standing = rng.choice(_DONE) if met == total else rng.choice(_PROGRESS).format(met=met, all=total)
    return f"{judgement} {standing}"


def refused(rng: Random, kind: MistakeKind, *, action: str, hint: str) -> str:
    """The DungeonMaster on an action that is wrong."""
    return rng.choice(_REFUSED[kind]).format(action=action, hint=hint)


def misread(rng: Random, action: str) -> str:
    """The DungeonMaster on a right action that it takes for a wrong one."""
    return rng.choice(_MISREAD).format(action=action)


def waved(rng: Random, action: str) -> str:
    """The DungeonMaster on a wrong action that it takes for a right one."""
    return rng.choice(_WAVED).format(action=action)
