"""Plays the environment, one turn at a time (paper, section 3.2; live play)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pydantic import JsonValue
from pydantic_ai.models import Model

from refinesynth.actions.matching import explain_mismatch, match_action
from refinesynth.prompts import Prompts
from refinesynth.prompts.blocks import Shown
from refinesynth.roles.answers import RULING
from refinesynth.roles.asking import Calls, ask
from refinesynth.roles.forms import AnswerForm, object_form
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script


@dataclass
class DungeonMaster:
    """One verb: `narrate`.

    It sees what the player did, not what the player thought: who reads intentions judges too kindly.
    """

    model: Model
    prompts: Prompts
    answers: int = 2
    """How often an invalid answer goes back to the model."""
    calls: Calls = field(default_factory=Calls)
    _shown: Shown | None = field(default=None, init=False, repr=False)

    async def narrate(
        self,
        script: Script,
        turns: Sequence[PlayerTurn | DungeonMasterTurn],
        action: str,
        *,
        violations: Sequence[Violation] = (),
    ) -> DungeonMasterTurn:
        """What comes of `action` after `turns`; `violations` say why an earlier play of this scene was taken back.

        Raises:
            InvalidAnswer: No answer was such a turn.
        """
        # The script first and what changes last: each request begins like the one before it, for the provider's cache.
        request = self.prompts.fill(
            "dungeon_master",
            "request",
            script=self._show(script),
            history=history(turns),
            action=action,
            form=form(script, action),
            violations=[violation.message for violation in violations],
        )
        return await ask(_form(self.prompts), request, model=self.model, calls=self.calls, answers=self.answers)

    def _show(self, script: Script) -> Shown:
        # The longest part of every request, and the same in all requests of an episode.
        if self._shown is None or self._shown.value is not script:
            self._shown = Shown(script)
        return self._shown


def history(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[dict[str, JsonValue]]:
    """The exchanges so far as the DungeonMaster is shown them, its own thoughts included: they keep what no observation says."""
    return [
        {
            "action": turn.action,
            "thought": answer.thought,
            "observation": answer.observation,
            "mistake": answer.mistake_kind,
        }
        for turn, answer in pairwise(turns)
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn)
    ]


def form(script: Script, action: str) -> dict[str, JsonValue]:
    """Whether the text is an available action with allowed values, and if not, why: what a program knows better.

    Of the turns that the paper's DungeonMaster called wrong, 18 % were right, and of those that it called right, some were not.
    """
    if match_action(script.actions, action) is not None:
        return {"available": True, "problem": None}
    return {"available": False, "problem": explain_mismatch(script.actions, action).message}


@lru_cache(maxsize=4)
def _form(prompts: Prompts) -> AnswerForm[DungeonMasterTurn]:
    instructions = prompts.fill("dungeon_master", "instructions")
    return object_form(RULING, name="ruling", instructions=instructions, read=_ruling)


def _ruling(answer: Mapping[str, Any]) -> DungeonMasterTurn:
    turn = DungeonMasterTurn.model_validate({**answer, "role": "DM"}, extra="ignore")
    if not turn.observation.strip():
        # A blank message teaches nothing, and some servers refuse it.
        raise ValueError("observation: it is blank; say what the player perceives")
    return turn
