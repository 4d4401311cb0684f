"""Faults of a rulebook that are found while its world is explored: where, and how to fix them."""

from collections.abc import Mapping

from pydantic import JsonValue

from refinesynth.world.compiled import CompiledAction
from refinesynth.world.errors import Inapplicable
from refinesynth.world.executor import World
from refinesynth.world.template import Pointer, Template

MAX_FAULTS = 16
"""Most faults that are reported of one rulebook."""

_WATCHED = 8
"""How often an action's `when`s and texts are checked."""


class RulebookFaults:
    """Faults in the order in which they were met, each place of the rulebook once."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._watched: dict[str, int] = {}
        self._looked_up: dict[tuple[str, Pointer], bool] = {}

    def messages(self) -> tuple[str, ...]:
        """All of them, as messages to the author, at most `MAX_FAULTS`."""
        missing = (where for (where, _), found in self._looked_up.items() if not found)
        lost = (
            f"{where} looks up what was never there; mend the pointer, or put it into the state" for where in missing
        )
        return (*self._messages.values(), *dict.fromkeys(lost))[:MAX_FAULTS]

    def add(self, where: str, what: str) -> None:
        """Note a fault, unless one of the same place is known."""
        self._messages.setdefault(where, what)

    def met(self, problem: str, text: str) -> None:
        """Note why an action could not be carried out."""
        # Up to the colon a problem says where it is, and after it what it found.
        self.add(problem.partition(": ")[0], f"{problem} (tried: {text!r})")

    def unanswered(self, action: CompiledAction, state: JsonValue, values: Mapping[str, str], text: str) -> None:
        """Note a requirement without an answer, if it decides about an action."""
        unmet = action.unmet(state, values)
        if unmet is not None and unmet.problem is not None:
            self.met(unmet.problem, text)

    def check_sights(self, world: World, state: JsonValue) -> None:
        """Note sights that have no answer in this state."""
        problem = world.visibility.names_in(state).problem
        if problem is not None:
            self.add("the sights", problem)

    def watch(
        self, action: CompiledAction, state: JsonValue, new: JsonValue, values: Mapping[str, str], text: str
    ) -> None:
        """Check an action that was carried out: the conditions of its effects, and the lookups of its observation."""
        times = self._watched.get(action.spec.name, 0)
        if times >= _WATCHED:
            return
        self._watched[action.spec.name] = times + 1
        for at, effect in enumerate(action.effects, 1):
            answer = True if effect.when is None else effect.when.answer(state, values)
            if isinstance(answer, str):
                where = f"the condition of effect {at} of {action.spec.name!r}"
                self.add(where, f"{where} has no answer: {answer} (tried: {text!r})")
            try:
                state = effect.apply(state, values)
            except Inapplicable:
                return
        self.fill(f"reveals of {action.spec.name!r}", action.reveals, new, values)

    def fill(self, where: str, template: Template, state: JsonValue, values: Mapping[str, str]) -> None:
        """Note for each lookup of a text whether it finds anything."""
        for part in template.parts:
            if isinstance(part, Pointer) and not self._looked_up.get((where, part)):
                self._looked_up[where, part] = _finds(part, state, values)


def _finds(pointer: Pointer, state: JsonValue, values: Mapping[str, str]) -> bool:
    try:
        pointer.read(state, values)
    except Inapplicable:
        return False
    return True
