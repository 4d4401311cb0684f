"""Plays the environment, one turn at a time (paper, section 3.2; live play), or puts into words what an executed world
rules.
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
    """Never blank."""


class _Completion(BaseModel, frozen=True):
    thought: str
    done: bool


@dataclass
class DungeonMaster(Actor):
    """`narrate` imagines the world and judges; `word` puts into words what an executed world has ruled, and judges
    nothing; `see_completion` judges whether the goal is reached, of a world that is real.

    It sees what the player did, not what the player thought: who reads intentions judges too kindly.
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
        """Return the outcome of `action` after `turns`; `violations` say why an earlier play of this scene was taken back.

        With a `limit`, the turns of both voices at which the play is broken off, it is reminded of how the play ends.

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
        """Words for the `ruling` on `action` after `turns`; `violations` say why other words for it were refused.

        Of the script it sees what the player sees: what is hidden it cannot give away.

        Raises:
            InvalidAnswer: No answer was such words.
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
        """Return the state of the completion conditions in words, and True if all of them hold after the real `result`
        of `action`.

        Raises:
            InvalidAnswer: No answer was such a judgement.
        """
        request = self.prompts.fill(
            "tool_server", "request", script=self._show(script), history=history(turns), action=action, result=result
        )
        found = await self.ask(_completion_form(self.prompts), request)
        return found.thought[:MAX_OBSERVATION], found.done

    def _show(self, script: Script) -> Shown:
        # The longest part of every request, and the same in all requests of an episode.
        if self._shown is None or self._shown.value is not script:
            self._shown = Shown(script)
        return self._shown


def history(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[dict[str, JsonValue]]:
    """The exchanges so far as the DungeonMaster is shown them, its own thoughts included: they keep what no observation
    says.
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
    """Return the reminder of how a play ends: by its completion conditions, or by its limit."""
    # The action that is answered and its answer are turns, too.
    return {"limit": limit, "left": max(0, limit - len(turns) - 2), "conditions": script.completion_conditions}


def told_of(script: Script) -> dict[str, JsonValue]:
    """Return what the player knows of a script, for a DungeonMaster that only words rulings."""
    return {
        "introduction": script.introduction,
        "goal": script.goal,
        "actions": [action.name for action in script.actions],
    }


def exchanges_without_thoughts(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[dict[str, JsonValue]]:
    """The exchanges so far without the DungeonMaster's thoughts: an executed world forgets nothing."""
    return [{name: value for name, value in entry.items() if name != "thought"} for entry in history(turns)]


def form(script: Script, action: str) -> dict[str, JsonValue]:
    """Return whether the text is an available action with allowed values, and if not, why: a program knows this better.

    Of the turns that the paper's DungeonMaster called wrong, 18 % were right, and of those that it called right, some
    were not.
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
        # A blank message teaches nothing, and some servers refuse it.
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
    """Thought and observation alone, in whichever spelling: flags and whatever else an answer holds are not read."""
    unflagged = dict.fromkeys(("parameter_error", "place_error", "logic_error"), False)
    said = {name: value for name, value in answer.items() if name.casefold() in {"thought", "observation"}}
    turn = _ruling({**said, **unflagged})
    return Words(turn.thought, turn.observation.strip())
