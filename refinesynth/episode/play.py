"""Interface of a play: roles, default rules, prompts, and how a script is written and played; record of an episode.

`plays` is the table of all plays.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import SkipValidation
from pydantic_ai.models import Model

from refinesynth.backends.backend import Role
from refinesynth.client.routing import in_turn
from refinesynth.client.session import Session
from refinesynth.errors import ConfigurationError
from refinesynth.outcome import Cost, Refused
from refinesynth.prompts import Prompts
from refinesynth.roles import Actor, CallLimit, InvalidAnswer, Judge, ScriptWriter, Verifier
from refinesynth.rules import chains
from refinesynth.rules.actions import SUCCESS
from refinesynth.rules.name_search import unmentioned_conditions
from refinesynth.rules.registry import numbers
from refinesynth.rules.rule import Rule, Verdict, Violation, all_of, rejects, verify
from refinesynth.rules.script_shape import with_fitting_patterns
from refinesynth.rules.text_form import ToTheLetter
from refinesynth.settings import PlaySettings
from refinesynth.settings.grounding import Grounding
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, Persona, PlayerTurn, Script


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


class EpisodeSettings(PlaySettings):
    """Settings of an episode: play, roles and rules.

    Raises:
        pydantic.ValidationError: A setting is out of its range.
    """

    rules: Annotated[Rule, SkipValidation]
    script_rules: Annotated[Rule, SkipValidation]
    """Rules for a script, which is checked as a draft without turns."""
    prompts: Annotated[Prompts, SkipValidation]
    bounded: frozenset[Role] = frozenset()
    """Roles with their default `max_tokens`, because the backend sets none."""
    tools: tuple[ActionSpec, ...] = ()
    """Actions from the user. Scripts have exactly these, or at most `MAX_TOOLS` of them, drawn per episode."""
    server: str | None = None
    """MCP server that executes the actions in live play; None if the DungeonMaster imagines the results."""
    real_state: str | None = None
    """Initial state of the server for the ScriptWriter, may be empty; None without a server."""
    scripted: bool = False
    """True if personas come with scripts, so no ScriptWriter is needed."""


MAX_TOOLS = 40
"""Maximum number of a user's tools in one world, as in the rule `ActionCount`; each episode draws from a larger set."""

Turns: TypeAlias = tuple[PlayerTurn | DungeonMasterTurn, ...]
"""Well-formed turns; the Player begins."""

_Actor = TypeVar("_Actor", bound=Actor)


@dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """Context of one play of an episode: settings, record, models, and a limit on completions that the roles share."""

    settings: EpisodeSettings
    record: EpisodeRecord
    models: Mapping[Role, Model]
    number: int = 0
    """Number of this play of the episode's script, from 0."""
    calls: CallLimit = field(default_factory=CallLimit)

    @classmethod
    def of(
        cls,
        play: "Play",
        settings: EpisodeSettings,
        record: EpisodeRecord,
        *,
        models: Mapping[Role, Model],
        number: int = 0,
    ) -> "EpisodeContext":
        """Create a context with the model of each role whose turn it is in a round-robin.

        Raises ConfigurationError: `models` lacks a role of the play.
        """
        session, roles = record.session, play.roles(settings)
        if missing := [role for role in roles if role not in models]:
            raise ConfigurationError(f"no model is given for the role {missing[0].value!r}; got {sorted(models)}")
        turn = settings.place(session.index) + number
        return cls(
            settings=settings,
            record=record,
            models={role: session.model(role, in_turn(models[role], turn)) for role in roles},
            number=number,
            calls=CallLimit(most=settings.attempts.calls),
        )

    def actor(self, kind: type[_Actor], role: Role, **more: Any) -> _Actor:
        """Create one of `refinesynth.roles` with the episode's prompts and limits."""
        answers = self.settings.attempts.answers
        shared = {"calls": self.calls, "salvaged": self.session.salvaged}
        return kind(self.models[role], self.settings.prompts, answers=answers, **shared, **more)

    @cached_property
    def verifier(self) -> Verifier:
        """Verifier with the run's rules and judge, if any; the judge's requests do not count against the limit."""
        settings, answers = self.settings, self.settings.attempts.answers
        judge = Judge(self.models[Role.JUDGE], settings.prompts, answers=answers) if settings.judge else None
        return Verifier(settings.rules, judge)

    @property
    def tools(self) -> tuple[ActionSpec, ...]:
        """The user's actions, or those drawn for this episode if there are many."""
        tools = self.settings.tools
        chosen = Random(self.session.seed).sample(range(len(tools)), min(len(tools), MAX_TOOLS))
        return tuple(tools[index] for index in sorted(chosen))

    @property
    def session(self) -> Session:
        return self.record.session


class Play(ABC):
    """Base class of plays.

    A play has no state and runs many episodes at once. The draft is deterministic for the same context and model
    answers.
    """

    name: str
    """Name in options and records: a lower-case letter, then letters, digits, `_` and `-`, at most 64 characters."""
    executed: bool = False
    """True if the script's rulebook is executed; `Grounding` settings apply to such plays only."""

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """Return the roles that play a script."""
        del settings
        return Role.DUNGEON_MASTER, Role.PLAYER

    def roles(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """Return all roles of an episode."""
        writer = () if settings.scripted else (Role.SCRIPT_WRITER,)
        repairer = (Role.REPAIRER,) if settings.repairer == "model" else ()
        return (*writer, *self.voices(settings), *repairer, *((Role.JUDGE,) if settings.judge else ()))

    def rules(self) -> Rule:
        return chains.strict()

    def script_rules(self, grounding: Grounding) -> Rule:
        del grounding
        return chains.script()

    def needs(self) -> Rule:
        """Return the requirements of this play on a script, independent of the script rules."""
        return all_of()

    def digest(self, prompts: Prompts) -> str:
        """Return the hexadecimal digest of all prompts of this play. A run can only be resumed with the same digest."""
        return prompts.digest

    async def write(self, context: EpisodeContext, /) -> Script | None:
        """Return the first script that the script rules accept; None after the last attempt.

        Raises `EpisodeAbandoned`, and `RunStopped` if no episode can continue.
        """
        more = {"seed": context.session.seed, "tools": context.tools, "state": context.settings.real_state}
        writer = context.actor(ScriptWriter, Role.SCRIPT_WRITER, **more)
        return await write_script(writer, context, needs=self.needs())

    @abstractmethod
    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        """Return the first draft that `context.verifier` accepts; None after the last attempt.

        It begins with `start`, a verified prefix that is never taken back. The play reports attempts and refused drafts
        to `context.record`. Raises as `write` does.
        """


async def write_script(writer: ScriptWriter, context: EpisodeContext, *, needs: Rule) -> Script | None:
    """Return the first script that the script rules accept, or None after the last attempt (paper, section 3.1).

    Each refused script goes back to the writer with its violations. `needs` applies in addition to the script rules. A
    pattern that does not fit its action is replaced, unless the run's rules demand literal answers.
    """
    record, settings = context.record, context.settings
    to_the_letter = ToTheLetter.__name__ in numbers(settings.rules)
    previous: Script | None = None
    violations: tuple[Violation, ...] = ()
    while record.scripts < settings.attempts.scripts:
        record.begin_script()
        try:
            script = await writer.write(record.persona, violations=violations, previous=previous)
        except InvalidAnswer as error:
            previous, violations = None, (invalid_answer(0, error),)
            record.refuse_script(None, violations, text=str(error))
            continue
        if not to_the_letter:
            script, replaced = with_fitting_patterns(script)
            record.session.salvaged += Counter({"pattern that did not fit": replaced})
        verdict = judged(script, settings.script_rules, needs)
        if verdict.accepted:
            unmet = () if script.rulebook else unmentioned_conditions(script)
            record.session.salvaged += Counter({"condition that no action names": len(unmet)})
            return script
        record.refuse_script(script, verdict.violations)
        previous, violations = script, tuple(filter(rejects, verdict.violations))
    return None


def judged(script: Script, rules: Rule, needs: Rule) -> Verdict:
    draft = Draft(script=script, finished=False)
    verdict = verify(draft, rules)
    return verify(draft, needs) if verdict.accepted else verdict


def ends_in_success(turns: Sequence[object]) -> bool:
    """Return whether the last turn reports the success; nothing can follow it."""
    last = turns[-1] if turns else None
    return isinstance(last, DungeonMasterTurn) and not last.flagged and SUCCESS in last.observation


def turns_to_keep(draft: Draft, verdict: Verdict) -> int:
    """Return the number of turns from which a play can continue a refused draft: the verified ones before the success."""
    return min(verdict.verified_turns, len(draft.turns) - ends_in_success(draft.turns))


def invalid_answer(turn: int, error: InvalidAnswer) -> Violation:
    """Return the violation for an answer that stayed invalid; it counts as rule `Answer`."""
    return Violation(rule="Answer", turn=turn, code="invalid_answer", message=str(error))
