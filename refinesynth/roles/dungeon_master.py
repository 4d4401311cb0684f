"""DungeonMaster: simulates the environment turn by turn (paper, section 3.2; live play), or words the rulings of an
executed world.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel, JsonValue

from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.prompts import Prompts
from refinesynth.prompts.data_blocks import Shown
from refinesynth.roles.actor import Actor
from refinesynth.roles.output_forms import AnswerForm, object_form
from refinesynth.roles.schemas import COMPLETION, RULING, WORDS
from refinesynth.rules.rule import Violation
from refinesynth.rules.text_form import MAX_OBSERVATION
from refinesynth.trajectory import EXECUTED, DungeonMasterTurn, PlayerTurn, Script


class Words(NamedTuple):
    """Words for the outcome of an action."""

    thought: str
    observation: str
    """Observation; never blank."""


class _Completion(BaseModel, frozen=True):
    thought: str
    done: bool


@dataclass
class DungeonMaster(Actor):
    """Role with three verbs: `narrate` simulates and judges, `word` puts a ruling of an executed world into words, and
    `see_completion` judges whether the goal is reached in a real environment.

    It sees the player's actions but not its thoughts, because a judge that reads intentions is too lenient.
    """

    _shown: Shown | None = field(default=None, init=False, repr=False)

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
        # The script comes first and the newest data last: requests share a prefix, which the provider can cache.
        request = self.prompts.fill(
            "dungeon_master",
            "request",
            script=self._show(script),
            history=history(turns),
            action=action,
            form=form(script, action),
            violations=[violation.message for violation in violations],
            ending=None if limit is None else ending(script, turns, limit),
        )
        return await self.ask(_form(self.prompts), request)

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
        request = self.prompts.fill(
            "grounded_master",
            "request",
            script=told_of(script),
            history=exchanges_without_thoughts(turns),
            action=action,
            ruling=ruling,
            violations=list(violations),
        )
        return await self.ask(_words_form(self.prompts), request)

    async def see_completion(
        self, script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], action: str, result: str
    ) -> tuple[str, bool]:
        """Return the state of the completion conditions in words, and whether all hold after the real `result` of
        `action`.

        Raises:
            InvalidAnswer: No answer was a valid judgement.
        """
        request = self.prompts.fill(
            "tool_server", "request", script=self._show(script), history=history(turns), action=action, result=result
        )
        found = await self.ask(_completion_form(self.prompts), request)
        return found.thought[:MAX_OBSERVATION], found.done

    def _show(self, script: Script) -> Shown:
        # The longest part of every request, identical in all requests of an episode.
        if self._shown is None or self._shown.value is not script:
            self._shown = Shown(script)
        return self._shown


def history(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[dict[str, JsonValue]]:
    """Return the exchanges so far with the DungeonMaster's own thoughts, which record facts that no observation
    mentions.
    """
    return [
        {
            "action": turn.action,
            "thought": answer.thought,
            "mistake": answer.mistake_kind,
            "observation": answer.observation,
        }
        for turn, answer in pairwise(turns)
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn)
    ]


def ending(
    script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], limit: int
) -> dict[str, int | tuple[str, ...]]:
    """Return the data of the reminder of the play's end: turn limit, turns left, and completion conditions."""
    # The pending action and its answer count as turns.
    return {"limit": limit, "left": max(0, limit - len(turns) - 2), "conditions": script.completion_conditions}


def told_of(script: Script) -> dict[str, JsonValue]:
    """Return the player's view of a script, for a DungeonMaster that words rulings."""
    return {
        "introduction": script.introduction,
        "goal": script.goal,
        "actions": [action.name for action in script.actions],
    }


def exchanges_without_thoughts(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[dict[str, JsonValue]]:
    """Return the exchanges so far without the DungeonMaster's thoughts; an executed world has its own state."""
    return [{name: value for name, value in entry.items() if name != "thought"} for entry in history(turns)]


def form(script: Script, action: str) -> dict[str, JsonValue]:
    """Return the program's check of the action's form and values, with the reason for a refusal.

    In the paper, 18 % of the turns that the DungeonMaster flagged were right, and some of the others were not.
    """
    if match_in(script, action) is not None:
        return {"available": True, "problem": None}
    return {"available": False, "problem": explain_mismatch(script.actions, action).message}


@lru_cache(maxsize=4)
def _form(prompts: Prompts) -> AnswerForm[DungeonMasterTurn]:
    instructions = prompts.fill("dungeon_master", "instructions")
    return object_form(RULING, name="ruling", instructions=instructions, read=_ruling)


def _ruling(answer: Mapping[str, Any]) -> DungeonMasterTurn:
    given = {name: value for name, value in answer.items() if name not in EXECUTED}
    turn = DungeonMasterTurn.model_validate({**given, "role": "DM"}, extra="ignore")
    if not turn.observation.strip():
        # A blank message carries no information, and some servers refuse it.
        raise ValueError("observation: it is blank; say what the player perceives")
    return turn


@lru_cache(maxsize=4)
def _completion_form(prompts: Prompts) -> AnswerForm[_Completion]:
    instructions = prompts.fill("tool_server", "instructions")
    return object_form(COMPLETION, name="completion", instructions=instructions, read=_Completion.model_validate)


@lru_cache(maxsize=4)
def _words_form(prompts: Prompts) -> AnswerForm[Words]:
    instructions = prompts.fill("grounded_master", "instructions")
    return object_form(WORDS, name="words", instructions=instructions, read=_words)


def _words(answer: Mapping[str, Any]) -> Words:
    """Return thought and observation in any accepted spelling; flags and other keys are ignored."""
    unflagged = dict.fromkeys(("parameter_error", "place_error", "logic_error"), False)
    said = {name: value for name, value in answer.items() if name.casefold() in {"thought", "observation"}}
    turn = _ruling({**said, **unflagged})
    return Words(turn.thought, turn.observation.strip())
