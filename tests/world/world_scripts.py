"""Grounded scripts of which only the rulebook matters."""

from collections.abc import Sequence

from refinesynth.trajectory import ActionSpec, Rulebook, Script


def script_of(*actions: ActionSpec, goal: Sequence[str] = ("true",)) -> Script:
    """A script with these actions and this goal."""
    return Script(
        environment={},
        goal="Go.",
        completion_conditions=tuple(goal),
        actions=actions,
        rulebook=Rulebook(goal=tuple(goal)),
    )
