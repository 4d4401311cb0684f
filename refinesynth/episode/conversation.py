"""Turn-by-turn play. Each exchange is verified immediately.

A draft that breaks a rule is cut back to its verified prefix, and the play continues from there with private feedback
to the roles. A violation without a verified prefix, such as too few mistakes, restarts the play.

A play that reaches the turn limit also restarts, because the turn at which it went wrong is unknown: an imagined world
may contradict itself, or the goal may be out of reach. On the next attempt, the DungeonMaster is reminded of the
completion conditions from the first turn.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refinesynth.actions.calls import python_call, text_of
from refinesynth.actions.matching import lenient_action, match_in
from refinesynth.backends.backend import Role
from refinesynth.chat import render_tool_turns, render_turns
from refinesynth.episode.play import EpisodeContext, Turns, ends_in_success, invalid_answer, turns_to_keep
from refinesynth.errors import EpisodeAbandoned, NoTools
from refinesynth.roles import Flag, InvalidAnswer, Player, ToolPlayer
from refinesynth.rules.actions import ValidActions
from refinesynth.rules.prompt_leaks import NoLeaks
from refinesynth.rules.repairs import repairs
from refinesynth.rules.rule import Verdict, Violation, exchanges, rejects
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import (
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    Script,
    flagged_turns,
    known_exchanges,
)

PLAYER_FEEDBACK: Mapping[tuple[str, str], str] = {
    ("NothingBlank", "blank"): "Say in a sentence or more what you think, and then what you do.",
    ("ReadsBack", "ambiguous_text"): (
        "Write the action bare and on one line, without quotes around it and without a blank line in it, and begin no line of what you "
        'think with "Thought:", "Action:" or "Observation:".'
    ),
    ("SizeLimits", "turn_too_long"): "Say what you think in a few sentences, and then what you do in one line.",
    ("NoLeaks", "leak"): "Think only of the place, the goal and what you were told there.",
    ("NoRepeatedMistake", "mistake_repeated"): (
        "{action} has been tried before and did not work. Try something different."
    ),
    ("RealRefinement", "not_refined"): (
        "{tried} did not work, and you were told: {answer}. Answer that moment anew, in one of two ways. Take the first step towards what was "
        "missing, even if more steps are needed, and say what this step is for. Or do without it for good: say what you do instead, and why "
        "that is enough."
    ),
    ("Cycle", "cycle"): "Again and again {action} has led back here. Try something different.",
    ("RulebookAnswers", "rulebook_fault"): "Nothing can come of {action} here. Try something different.",
}
"""Feedback to the Player by rule and code, in words that fit the scene.

A violation's message is written for the record and for a Narrator: it mentions turn numbers and the DungeonMaster. A
Player would repeat these words in its thought, and `NoLeaks` refuses such thoughts."""

DEFAULT_FEEDBACK = "That will not do here. Think again, and try something different."


_PLACEHOLDER = re.compile(r"\{(?:action|tried|answer)\}")
_TURN_NUMBER = re.compile(r"\bturn \d+\b", re.IGNORECASE)


@dataclass(frozen=True)
class RetryFeedback:
    """Feedback to each role about the exchange that was taken back."""

    dungeon_master: tuple[Violation, ...] = ()
    player: tuple[str, ...] = ()

    @classmethod
    def of(cls, draft: Draft, verdict: Verdict) -> "RetryFeedback":
        """Assign each violation with a turn to the role of that turn. Violations of the whole draft go to no role.

        An unavailable action that the DungeonMaster accepted is the DungeonMaster's fault, because the Player may have
        been asked for a mistake. Feedback about too few mistakes would make a DungeonMaster invent some.
        """
        rejecting = [v for v in verdict.violations if rejects(v) and v.keeps_prefix and v.turn < len(draft.turns)]
        for_dungeon_master: list[Violation] = []
        for_player: list[str] = []
        for violation in rejecting:
            turn = draft.turns[violation.turn]
            if isinstance(turn, PlayerTurn) and violation.rule != ValidActions.__name__:
                for_player.append(player_feedback(violation, turn, draft.turns[: violation.turn]))
            else:
                for_dungeon_master.append(violation)
        return cls(dungeon_master=tuple(for_dungeon_master), player=tuple(dict.fromkeys(for_player)))


def player_feedback(violation: Violation, turn: PlayerTurn, earlier: Sequence[DraftTurn] = ()) -> str:
    """Return the feedback to the Player about a violation at one of its turns; `earlier` are the turns before it.

    For rules of other packages this is the violation's message without turn numbers. A thought that repeats the
    feedback passes `NoLeaks`.
    """
    template = PLAYER_FEEDBACK.get((violation.rule, violation.code))
    text = _TURN_NUMBER.sub("your answer", violation.message) if template is None else template
    if template is not None:
        refused = [
            (step.player.action, step.answer.observation) for step in exchanges(earlier) if step.answer and step.flagged
        ]
        tried, answer = refused[-1] if refused else ("What you tried", "nothing")
        values = {"{action}": turn.action, "{tried}": tried, "{answer}": answer}
        text = _PLACEHOLDER.sub(lambda match: quoted(values[match[0]]), text)
    return DEFAULT_FEEDBACK if _leaks_prompt(text) else text


def _leaks_prompt(text: str) -> bool:
    thought = PlayerTurn(thought=text, action="wait")
    return any(NoLeaks()(Draft(script=_NO_SCRIPT, turns=(thought,))))


_NO_SCRIPT = Script(environment={}, goal="none", completion_conditions=(), actions=())


class Unanswerable(Exception):
    """The play cannot continue after `turns`; the violation names the first refused turn."""

    def __init__(self, turns: Turns, violation: Violation) -> None:
        super().__init__(violation.message)
        self.turns = turns
        self.violation = violation


MAX_CALLS = 16
"""Maximum number of calls in one message."""


class Agent:
    """Role that acts in the scene, by native tool calls if requested and supported by its model."""

    def __init__(self, context: EpisodeContext, role: Role, script: Script) -> None:
        self._script = script
        self._text_player = context.actor(Player, role)
        asks_tools, self._parallel = context.settings.player_form == "tools", context.settings.parallel_calls
        max_calls = MAX_CALLS if self._parallel else 1
        self._tool_player = context.actor(ToolPlayer, role, script=script, most=max_calls) if asks_tools else None
        self.lacks_tools = False
        """True if tool calls were requested and the model does not support them."""

    async def act(self, turns: Turns, **private: Any) -> tuple[PlayerTurn, ...]:
        """Return the turns of the next message; `private` as in `Player.act`."""
        if self._tool_player is not None:
            try:
                view = render_tool_turns(self._script, turns, parallel=self._parallel)
                return await self._tool_player.act(view, **private)
            except NoTools:
                self._tool_player, self.lacks_tools = None, True
        return (await self._text_player.act(render_turns(self._script, turns), **private),)


class Conversation(ABC):
    """Play of one script. Subclasses implement the environment's answer."""

    def __init__(self, context: EpisodeContext, script: Script) -> None:
        self.player = Agent(context, Role.PLAYER, script)
        self.repairer = Agent(context, Role.REPAIRER, script) if Role.REPAIRER in context.models else None
        self.verifier, self.record = context.verifier, context.record
        self.session, self.settings = context.session, context.settings
        self.script = script
        self.number = context.number
        """Number of this play of the script, from 0."""
        self.reached_turn_limit = False
        """True if an earlier attempt at this play reached the turn limit."""
        self._pending_calls: list[PlayerTurn] = []
        """Calls of the last message that are not executed yet."""

    async def play(self, start: Turns = ()) -> Draft | None:
        turns = start
        feedback = RetryFeedback()
        failure: object = None
        while self.record.drafts < self.settings.attempts.drafts:
            self.record.begin_draft(after=len(turns))
            draft, verdict = await self._converse(turns, feedback)
            if verdict.accepted:
                return draft
            self.record.refuse_draft(draft, verdict.violations)
            turns = up_to_an_observation(draft, max(len(start), turns_to_keep(draft, verdict)))
            feedback = RetryFeedback.of(draft, verdict)
            violations = [(v.rule, v.code, v.turn) for v in verdict.violations if rejects(v)]
            actions = [turn.action for turn in draft.turns[len(turns) :] if isinstance(turn, PlayerTurn)]
            previous_failure, failure = failure, (turns, violations, actions)
            if previous_failure == failure:
                # The roles failed in the same way despite the feedback, so the turns that led there are taken back too:
                # from the player's last mistake, or without one from its last action.
                player_turns = [index for index, turn in enumerate(turns) if isinstance(turn, PlayerTurn)]
                kept = max(len(start), [0, *player_turns, *flagged_turns(turns)][-1])
                if kept < len(turns):
                    turns, feedback = turns[:kept], RetryFeedback()
        return None

    @abstractmethod
    async def _exchange(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        """Return the player's next turn and the answer to it."""

    async def _converse(self, turns: Turns, feedback: RetryFeedback) -> tuple[Draft, Verdict]:
        """Add exchanges until the goal is reached, a rule is broken, or the turn limit is reached."""
        start = len(turns)
        self._pending_calls.clear()
        while True:
            turn_feedback = feedback if len(turns) == start else RetryFeedback()
            try:
                turns += await self._exchange(turns, turn_feedback)
            except Unanswerable as error:
                verified = error.violation.turn if error.violation.keeps_prefix else 0
                return self._draft(error.turns), _rejection(error.violation, keeping=verified)
            except InvalidAnswer as error:
                return self._draft(turns), _rejection(invalid_answer(len(turns), error), keeping=len(turns))
            except EpisodeAbandoned as error:
                if len(turns) > start:
                    self.record.refuse_draft(self._draft(turns), text=str(error))
                raise
            draft = self._draft(turns)
            verdict = await self.verifier.verify(draft)
            if draft.finished or not verdict.accepted:
                return draft, verdict
            if len(turns) >= self.settings.max_turns:
                self.reached_turn_limit = True
                message = f"After {len(turns)} turns the goal was not reached. Reach it in fewer, or write a world in which that is possible."
                code = "out_of_turns"
                violation = Violation(rule="MaxTurns", turn=len(turns), code=code, message=message, keeps_prefix=False)
                return draft, _rejection(violation, keeping=0)

    async def _act(self, turns: Turns, feedback: RetryFeedback) -> PlayerTurn:
        """Return the next turn: the player's, or after a mistake the repairer's, if there is one.

        The calls of one message are executed in order, even if one of them fails.
        """
        if self._pending_calls:
            return self._normalized(self._pending_calls.pop(0))
        acts = await self._repair(turns, feedback) if self._is_repairers_turn(turns) else ()
        if acts:
            acts = tuple(act.model_copy(update={"by": Role.REPAIRER.value}) for act in acts)
        else:
            acts = await self.player.act(turns, mistake=self._mistake_request(turns), violations=feedback.player)
            self.record.in_text = self.record.in_text or self.player.lacks_tools
        act, *self._pending_calls = acts
        return self._normalized(act)

    def _normalized(self, act: PlayerTurn) -> PlayerTurn:
        """Return the turn with its action replaced by the available action that it means, if matching is lenient."""
        if self.settings.match == "strict":
            return act
        action = lenient_action(self.script, act.action)
        if match_in(self.script, action) is None and (call := python_call(self.script, action)) is not None:
            action = text_of(self.script, call[1])
        if action == act.action:
            return act
        self.session.salvaged["action in other words"] += 1
        return act.model_copy(update={"action": action})

    def _is_repairers_turn(self, turns: Turns) -> bool:
        answers = [answer for _, answer in known_exchanges(turns) if not answer.transient]
        turns_since_mistake = next((index for index, answer in enumerate(reversed(answers)) if answer.flagged), None)
        if self.settings.repairer is None or turns_since_mistake is None:
            return False
        if self.settings.repair_turns == "until":
            return turns_since_mistake == 0 or repairs(self._draft(turns))[-1].answer is None
        return turns_since_mistake < self.settings.repair_turns

    async def _repair(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, ...]:
        """Return the turns of the repairer's message; empty to let the player act."""
        if self.repairer is None:
            return ()
        flag, (act, answer) = None, known_exchanges(turns)[-1]
        if answer.mistake_kind is not None:
            # The reason of the flag in words that pass `NoLeaks` in a thought.
            reason = answer.observation if _leaks_prompt(answer.thought) else answer.thought
            flag = Flag(act.action, answer.mistake_kind, reason)
        return await self.repairer.act(turns, violations=feedback.player, flag=flag)

    def _mistake_request(self, turns: Turns, **known: Any) -> MistakeRequest | None:
        """Return the mistake or repair to request from the player, if any; `known` as in `Mistakes.ask`."""
        return self.settings.mistakes.ask(
            turns,
            episode=self.settings.place(self.session.index) + self.number,
            attempt=self.record.drafts,
            seed=self.session.seed,
            **known,
        )

    def _draft(self, turns: Turns) -> Draft:
        return Draft(script=self.script, turns=turns, finished=ends_in_success(turns))


def _rejection(violation: Violation, *, keeping: int) -> Verdict:
    return Verdict(accepted=False, violations=(violation,), verified_turns=keeping)


def up_to_an_observation(draft: Draft, verified: int) -> Turns:
    """Return the verified prefix up to the last observation, so the Player acts next."""
    prefix = [turn for turn in draft.turns[:verified] if isinstance(turn, PlayerTurn | DungeonMasterTurn)]
    while prefix and not isinstance(prefix[-1], DungeonMasterTurn):
        prefix.pop()
    return tuple(prefix)
