"""What somebody in a world is told of a text that is no action there: enough to try otherwise, and no list of what there is."""

from collections.abc import Sequence

from refinesynth.actions.matching import MAX_ACTION_CHARACTERS, allowed_value, match_pattern, otherwise_spelled
from refinesynth.actions.wording import quoted
from refinesynth.trajectory import ActionSpec

_SHOWN = 80
"""How much of a player's text is repeated, in characters."""


def refusal(actions: Sequence[ActionSpec], text: str) -> str:
    """One plain sentence to the player. Never raises; for a text that is an action, it means nothing.

    `explain_mismatch` says the same to a model that has to mend its text, with everything that would have been available.
    """
    if not text.strip():
        return "Nothing is done, so nothing happens."
    if len(text) > MAX_ACTION_CHARACTERS:
        return "That is far too much to do at once."
    for action in actions:
        for name, value in (match_pattern(action, text) or {}).items():
            if value is not None and allowed_value(action, name, value) is None:
                what = " ".join(name.replace("_", " ").split())
                spelled = "" if otherwise_spelled(action, name, value) is None else "spelled "
                return f"There is no {what} {spelled}{quoted(value.strip(), most=_SHOWN)} to do that with."
    return f"{quoted(text.strip(), most=_SHOWN)} is nothing that can be done here."
