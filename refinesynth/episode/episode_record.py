"""Record of an episode besides its trajectories: refused scripts and drafts, costs and attempts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refinesynth.client.session import Session
from refinesynth.cost import Cost
from refinesynth.outcome import Refused
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Draft, Persona, Script


@dataclass(frozen=True)
class _Stretch:
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
    _kept: list[_Stretch] = field(default_factory=list[_Stretch])
    _before: Cost = field(default_factory=Cost)
    _after: int = 0
    """Number of turns that the current draft took over."""
    _open: bool = False
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
        self._kept.clear()
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
        self._after = after
        self._begin()

    def refuse_script(
        self, script: Script | None, violations: Sequence[Violation] = (), *, text: str | None = None
    ) -> None:
        """Record a refused script, or the error of an answer without a script."""
        spent = self.session.spent - self._before
        self._refuse("script", self.scripts, violations, script=script, text=text, **dict(spent))

    def refuse_draft(self, draft: Draft, violations: Sequence[Violation] = (), *, text: str | None = None) -> None:
        """Record a refused draft as far as it was played."""
        self._kept.append(_Stretch(self._after, len(draft.turns), self.session.spent - self._before))
        self._open = True
        self._refuse("draft", self._drafts_before + self.drafts, violations, draft=draft, text=text)

    def _refuse(
        self, stage: Literal["script", "draft"], attempt: int, violations: Sequence[Violation], **more: Any
    ) -> None:
        common = {"episode": self.session.id, "persona": self.persona, "violations": tuple(violations)}
        self._refused.append(Refused(stage=stage, attempt=attempt, **common, **more))

    def _begin(self) -> None:
        self.session.attempt += 1
        self._before = self.session.spent

    def _take_back(self, *, to: int) -> None:
        """Charge the last refused draft with the cost of all turns after the first `to`."""
        if not self._open:
            return
        self._open = False
        kept, thrown = list[_Stretch](), Cost()
        for stretch in self._kept:
            if stretch.start >= to:
                thrown += stretch.spent
            elif stretch.end <= to:
                kept.append(stretch)
            else:
                part = stretch.spent.share(to - stretch.start, stretch.end - stretch.start)
                kept.append(_Stretch(stretch.start, to, part))
                thrown += stretch.spent - part
        self._kept = kept
        self._refused[-1] = self._refused[-1].model_copy(update=dict(thrown))
