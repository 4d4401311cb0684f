"""DungeonMaster: simulates the environment turn by turn (paper, section 3.2; live play), or words the rulings of an
executed world.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.roles import schemas
from refinesynth.roles.actor import Actor
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import EXECUTED, DungeonMasterTurn, PlayerTurn, Script
from refinesynth.trajectory.turns import MAX_OBSERVATION, answered_turns


class Words(NamedTuple):
    """Words for the outcome of an action."""

    thought: str
    observation: str
    """Observation; never blank."""


@dataclass
class DungeonMaster(Actor):
    """Role with three verbs: `narrate` simulates and judges, `word` puts a ruling of an executed world into words, and
    `see_completion` judges whether the goal is reached in a real environment.

    It sees the player's actions but not its thoughts, because a judge that reads intentions is too lenient.
    """

    async def narrate(
        self,
        script: Script,
        turns: Sequence[PlayerTurn | DungeonMasterTurn],
        action: str,
        *,
        violations: Sequence[Violation] = (),
        limit: int | None = None,
    ) -> DungeonMasterTurn:
        """Return the outcome of `action` after `turns`; `violations` are feedback about an earlier version of this
        turn.

        With a `limit` on the turns of both roles, the request contains a reminder of the play's end.

        Raises:
            InvalidAnswer: No answer was a valid turn.
        """
        ending = None
        if limit is not None:
            remaining = max(0, limit - len(turns) - 2)  # the pending action and its answer count as turns
            ending = {"limit": limit, "left": remaining, "conditions": script.completion_conditions}
        # The script comes first and the newest data last: requests share a prefix, which the provider can cache.
        return await self.answer(
            "dungeon_master",
            schemas.Ruling,
            _ruling,
            script=script,
            history=history(turns),
            action=action,
            form=form(script, action),
            violations=[violation.message for violation in violations],
            ending=ending,
        )

    async def word(
        self,
        script: Script,
        turns: Sequence[PlayerTurn | DungeonMasterTurn],
        action: str,
        ruling: Mapping[str, Any],
        *,
        violations: Sequence[str] = (),
    ) -> Words:
        """Return words for the `ruling` on `action` after `turns`; `violations` are feedback about earlier words.

        The request contains only the player's view of the script, so the words cannot reveal anything hidden.

        Raises:
            InvalidAnswer: No answer was valid.
        """
        return await self.answer(
            "grounded_master",
            schemas.Words,
            _words,
            script=player_view(script),
            history=history(turns, thoughts=False),
            action=action,
            ruling=ruling,
            violations=list(violations),
        )

    async def see_completion(
        self, script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], action: str, result: str
    ) -> tuple[str, bool]:
        """Return the state of the completion conditions in words, and whether all hold after the real `result` of
        `action`.

        Raises:
            InvalidAnswer: No answer was a valid judgement.
        """
        judgement = await self.answer(
            "tool_server",
            schemas.Completion,
            schemas.Completion.read,
            script=script,
            history=history(turns),
            action=action,
            result=result,
        )
        return judgement.thought[:MAX_OBSERVATION], judgement.done


def history(turns: Sequence[PlayerTurn | DungeonMasterTurn], *, thoughts: bool = True) -> list[dict[str, JsonValue]]:
    """Return the exchanges so far. The DungeonMaster's own thoughts record facts that no observation mentions; an
    executed world has its own state and needs none.
    """
    return [
        {
            "action": turn.action,
            **({"thought": answer.thought} if thoughts else {}),
            "mistake": answer.mistake_kind,
            "observation": answer.observation,
        }
        for _, turn, answer in answered_turns(turns)
    ]


def player_view(script: Script) -> dict[str, JsonValue]:
    """Return the player's view of a script, for a DungeonMaster that words rulings."""
    return {
        "introduction": script.introduction,
        "goal": script.goal,
        "actions": [action.name for action in script.actions],
    }


def form(script: Script, action: str) -> dict[str, JsonValue]:
    """Return the program's check of the action's form and values, with the reason for a refusal.

    In the paper, 18 % of the turns that the DungeonMaster flagged were right, and some of the others were not.
    """
    if match_in(script, action) is not None:
        return {"available": True, "problem": None}
    return {"available": False, "problem": explain_mismatch(script.actions, action).message}


def _ruling(answer: Mapping[str, Any]) -> DungeonMasterTurn:
    fields = {name: value for name, value in answer.items() if name not in EXECUTED}
    turn = DungeonMasterTurn.model_validate({**fields, "role": "DM"}, extra="ignore")
    if not turn.observation.strip():
        # A blank message carries no information, and some servers refuse it.
        raise ValueError("observation: it is blank; say what the player perceives")
    return turn


def _words(answer: Mapping[str, Any]) -> Words:
    """Return thought and observation in any accepted spelling; flags and other keys are ignored."""
    unflagged = dict.fromkeys(("parameter_error", "place_error", "logic_error"), False)
    fields = {name: value for name, value in answer.items() if name.casefold() in {"thought", "observation"}}
    turn = _ruling({**fields, **unflagged})
    return Words(turn.thought, turn.observation.strip())
