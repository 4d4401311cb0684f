"""Record of an episode besides its trajectories: refused scripts and drafts, costs and attempts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refinesynth.client.session import Session
from refinesynth.outcome import Cost, Refused
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Draft, Persona, Script


@dataclass(frozen=True)
class _TurnRange:
    """Turns of one attempt from `start` up to `end`, exclusive, and their cost."""

    start: int
    end: int
    spent: Cost


@dataclass
class EpisodeRecord:
    """Record that grows while an episode is played.

    The cost of a refused draft is known when the next one begins: the cost of the turns that were taken back. A later
    refusal may take back more turns and is charged with them. A refused draft without a successor is charged with all
    remaining turns.
    """

    session: Session
    persona: Persona
    scripts: int = 0
    drafts: int = 0
    """Drafts of the current play so far."""
    in_text: bool = False
    """True if the current play's player was asked for tool calls, does not support them, and plays in text."""
    _drafts_before: int = 0
    """Drafts of earlier plays of the episode."""
    _refused: list[Refused] = field(default_factory=list[Refused])
    _attempt_costs: list[_TurnRange] = field(default_factory=list[_TurnRange])
    _spent_before: Cost = field(default_factory=Cost)
    _turns_taken_over: int = 0
    """Number of turns that the current draft took over."""
    _can_continue: bool = False
    """True if the last refused draft may still be continued."""

    def close(self) -> tuple[Refused, ...]:
        """Charge the last refused draft with its remaining turns, and return everything that was refused, in order. Call
        it after the last attempt only.
        """
        self._take_back(to=0)
        return tuple(self._refused)

    def begin_play(self) -> None:
        """Begin a new play of the script, from the beginning or from a prefix whose cost is accounted for."""
        self._take_back(to=0)
        self._attempt_costs.clear()
        self._drafts_before += self.drafts
        self.drafts = 0
        self.in_text = False

    def begin_script(self) -> None:
        self.scripts += 1
        self._begin()

    def begin_draft(self, *, after: int = 0) -> None:
        """Begin a draft that keeps the first `after` turns of the last one."""
        self._take_back(to=after)
        self.drafts += 1
        self._turns_taken_over = after
        self._begin()

    def refuse_script(
        self, script: Script | None, violations: Sequence[Violation] = (), *, text: str | None = None
    ) -> None:
        """Record a refused script, or the error of an answer without a script."""
        spent = self.session.spent - self._spent_before
        self._refuse("script", self.scripts, violations, script=script, text=text, **dict(spent))

    def refuse_draft(self, draft: Draft, violations: Sequence[Violation] = (), *, text: str | None = None) -> None:
        """Record a refused draft as far as it was played."""
        self._attempt_costs.append(
            _TurnRange(self._turns_taken_over, len(draft.turns), self.session.spent - self._spent_before)
        )
        self._can_continue = True
        self._refuse("draft", self._drafts_before + self.drafts, violations, draft=draft, text=text)

    def _refuse(
        self, stage: Literal["script", "draft"], attempt: int, violations: Sequence[Violation], **more: Any
    ) -> None:
        common = {"episode": self.session.id, "persona": self.persona, "violations": tuple(violations)}
        self._refused.append(Refused(stage=stage, attempt=attempt, **common, **more))

    def _begin(self) -> None:
        self.session.attempt += 1
        self._spent_before = self.session.spent

    def _take_back(self, *, to: int) -> None:
        """Charge the last refused draft with the cost of all turns after the first `to`."""
        if not self._can_continue:
            return
        self._can_continue = False
        remaining, refused_cost = list[_TurnRange](), Cost()
        for turn_range in self._attempt_costs:
            if turn_range.start >= to:
                refused_cost += turn_range.spent
            elif turn_range.end <= to:
                remaining.append(turn_range)
            else:
                part = turn_range.spent.share(to - turn_range.start, turn_range.end - turn_range.start)
                remaining.append(_TurnRange(turn_range.start, to, part))
                refused_cost += turn_range.spent - part
        self._attempt_costs = remaining
        self._refused[-1] = self._refused[-1].model_copy(update=dict(refused_cost))
