"""Which rule raised although rules never do, and where in whose code."""

from traceback import walk_tb
from typing import cast

from refinesynth.errors import RuleFailed

_OURS = "refinesynth"
_COMPOSING = "refinesynth.rules.rule"


def blame(error: Exception) -> RuleFailed | None:
    """The error that names a rule of the user's own; None where `error` is a fault of the package itself.

    `error` was raised while rules looked at a draft.
    """
    rule: object = None
    place = before = ""
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module == _COMPOSING:
            # What composes rules calls them by this name; the innermost is the one that failed.
            held = getattr(frame.f_locals.get("self"), "rule", rule)
            rule = cast("object", frame.f_locals.get("rule", held))
        elif before == _COMPOSING and module.partition(".")[0] != _OURS:
            # Called by what composes, and not by a rule of the package: it is the rule.
            place = f" ({frame.f_code.co_filename}:{line})"
        before = module
    home = str(getattr(rule, "__module__", type(rule).__module__))
    if home.partition(".")[0] == _OURS and not place:
        return None
    name = getattr(rule, "__name__", type(rule).__name__)
    return RuleFailed(
        f"the rule {name}{place} raised {type(error).__name__}: {error}. A rule yields violations and raises nothing, whatever "
        f"the draft holds: correct it, and the same command goes on"
    )
