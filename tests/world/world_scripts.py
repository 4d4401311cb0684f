"""Grounded scripts of which only the rulebook matters."""

from collections.abc import Sequence
from typing import Any

from refinesynth.trajectory import ActionSpec, Invariant, Rulebook, Script, Sight


def script_of(
    *actions: ActionSpec,
    goal: Sequence[str] = ("true",),
    sights: Sequence[Sight] = (),
    invariants: Sequence[str] = (),
    solution: Sequence[str] = (),
    environment: dict[str, Any] | None = None,
) -> Script:
    """A script with these actions and this goal."""
    return Script(
        environment=environment or {},
        goal="Go.",
        completion_conditions=tuple(goal),
        actions=actions,
        rulebook=Rulebook(
            goal=tuple(goal),
            sights=tuple(sights),
            invariants=tuple(Invariant(condition=condition) for condition in invariants),
            solution=tuple(solution),
        ),
    )
