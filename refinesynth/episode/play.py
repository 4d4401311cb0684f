"""A kind of play as one object: the roles that it asks, its default rules, its prompts, how a script is written and how
it is played.

`plays` is the table of those that there are.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import SkipValidation
from pydantic_ai.models import Model

from refinesynth.backends.names import PLANNER
from refinesynth.backends.role import Role
from refinesynth.client.routing import in_turn
from refinesynth.client.session import Session
from refinesynth.client.tracing import ACCEPTED, span
from refinesynth.episode.episode_record import EpisodeRecord
from refinesynth.errors import ConfigurationError
from refinesynth.prompts import Prompts
from refinesynth.roles import Actor, CallLimit, InvalidAnswer, Judge, ScriptWriter, Verifier
from refinesynth.rules import chains
from refinesynth.rules.name_search import out_of_reach
from refinesynth.rules.registry import numbers
from refinesynth.rules.rule import Rule, Verdict, Violation, all_of, rejects, verify
from refinesynth.rules.script_shape import with_fitting_patterns
from refinesynth.rules.text_form import ToTheLetter
from refinesynth.settings import PlaySettings
from refinesynth.settings.grounding import Grounding
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, PlayerTurn, Script


class EpisodeSettings(PlaySettings):
    """Settings of an episode: play, roles and rules."""

    rules: Annotated[Rule, SkipValidation]
    script_rules: Annotated[Rule, SkipValidation]
    """Rules for a script, which is checked as a draft without turns."""
    prompts: Annotated[Prompts, SkipValidation]
    bounded: frozenset[Role] = frozenset()
    """Roles whose answers have their default `max_tokens` where the backend states none."""
    tools: tuple[ActionSpec, ...] = ()
    """Actions that the user gave; scripts have these, and no others."""
    server: str | None = None
    """MCP server that executes the actions in live play; None where the DungeonMaster imagines their results."""
    real_state: str | None = None
    """State of the server as a play begins, in words for the ScriptWriter, perhaps none; None without a server."""
    scripted: bool = False
    """True if personas come with their scripts, so that no ScriptWriter is asked."""


MOST_TOOLS = 40
"""Most of a user's tools in one world, as in the rule `ActionCount`; of more, each episode draws so many."""

Turns: TypeAlias = tuple[PlayerTurn | DungeonMasterTurn, ...]
"""Well-formed turns, the Player's first."""

_Actor = TypeVar("_Actor", bound=Actor)


@dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """Context of an episode: its settings, its record and its models, and one bound on completions for all of them."""

    settings: EpisodeSettings
    record: EpisodeRecord
    models: Mapping[Role, Model]
    number: int = 0
    """Which play of the episode's script this is, from 0."""
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
        """Take the models whose turn it is in their role: plays and episodes take one each.

        Raises ConfigurationError: `models` lacks a role that the play asks.
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
        """One of `refinesynth.roles` in this role, with the episode's prompts and bounds."""
        answers = self.settings.attempts.answers
        shared = {"calls": self.calls, "salvaged": self.session.salvaged}
        return kind(self.models[role], self.settings.prompts, answers=answers, **shared, **more)

    @cached_property
    def verifier(self) -> Verifier:
        """The run's rules, and its judge if it has one; what a judge is asked is not counted."""
        settings = self.settings
        if not settings.judge:
            return Verifier(settings.rules)
        judge = Judge(self.models[Role.JUDGE], settings.prompts, answers=settings.attempts.answers)
        return Verifier(settings.rules, judge)

    @property
    def tools(self) -> tuple[ActionSpec, ...]:
        """The user's actions, or if they are many, those that are drawn for this episode."""
        given = self.settings.tools
        chosen = Random(self.session.seed).sample(range(len(given)), min(len(given), MOST_TOOLS))
        return tuple(given[at] for at in sorted(chosen))

    @property
    def session(self) -> Session:
        return self.record.session

    @property
    def asked(self) -> dict[str, str]:
        """Role name to model name, for the record."""
        planner = {Role.REPAIRER.value: PLANNER} if self.settings.repairer == PLANNER else {}
        return {role.value: model.model_name for role, model in self.models.items()} | planner


class Play(ABC):
    """A kind of play. What most have in common is here; each adds how it is played.

    An object of it holds no state: it plays many episodes at once. With models that answer alike, the same context gives
    the same draft, byte for byte.
    """

    name: str
    """As it is asked for, and as records keep it: a lower-case letter, then letters, digits, `_` and `-`, 64 characters
    at most."""
    executed: bool = False
    """True if a script's rulebook is executed: settings of `Grounding` are for such plays alone."""

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """The roles that play a script."""
        del settings
        return Role.DUNGEON_MASTER, Role.PLAYER

    def roles(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """All roles that an episode asks models for."""
        writer = () if settings.scripted else (Role.SCRIPT_WRITER,)
        repairer = (Role.REPAIRER,) if settings.repairer == "model" else ()
        return (*writer, *self.voices(settings), *repairer, *((Role.JUDGE,) if settings.judge else ()))

    def rules(self) -> Rule:
        return chains.strict()

    def script_rules(self, grounding: Grounding) -> Rule:
        del grounding
        return chains.script()

    def needs(self) -> Rule:
        """Requirements on a script that hold whatever the script rules are: without them it cannot be played."""
        return all_of()

    def digest(self, prompts: Prompts) -> str:
        """Digest of everything that its models may be asked with; a run is continued where it is the same."""
        return prompts.digest

    async def write(self, context: EpisodeContext, /) -> Script | None:
        """First script that the script rules accept; None if the attempts are used up.

        Raises `EpisodeAbandoned`, and `RunStopped` if no episode can go on.
        """
        more = {"seed": context.session.seed, "tools": context.tools, "state": context.settings.real_state}
        writer = context.actor(ScriptWriter, Role.SCRIPT_WRITER, **more)
        return await write_script(writer, context, needs=self.needs())

    @abstractmethod
    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        """First draft that `context.verifier` accepts; None if the attempts are used up.

        It begins with `start`, which was verified and is not taken back. Attempts are announced to `context.record`,
        and drafts that are not accepted are left there. Raises as `write` does.
        """


def given_script(play: Play, context: EpisodeContext, script: Script) -> Script | None:
    """A script that was there before, if it is accepted now: rules and play may be others than those of its run."""
    verdict = judged(script, context.settings.script_rules, play.needs())
    if verdict.accepted:
        return script
    context.record.refuse_script(script, verdict.violations)
    return None


async def write_script(writer: ScriptWriter, context: EpisodeContext, *, needs: Rule) -> Script | None:
    """The first script that the script rules accept, or None when the attempts are used up (paper, section 3.1).

    Each refused script goes back to the writer with what is wrong with it. What `needs` refuses is never accepted,
    whatever the script rules are. A pattern that does not fit its action is replaced, unless the run's rules take
    answers to the letter.
    """
    record, settings = context.record, context.settings
    to_the_letter = ToTheLetter.__name__ in numbers(settings.rules)
    previous: Script | None = None
    violations: tuple[Violation, ...] = ()
    while record.scripts < settings.attempts.scripts:
        record.begin_script()
        try:
            with span("attempt", stage="script", number=record.scripts):
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
            unmet = () if script.rulebook else out_of_reach(script)
            record.session.salvaged += Counter({"condition that no action names": len(unmet)})
            return script
        record.refuse_script(script, verdict.violations)
        previous, violations = script, tuple(filter(rejects, verdict.violations))
    return None


def judged(script: Script, rules: Rule, needs: Rule) -> Verdict:
    draft = Draft(script=script, finished=False)
    with span("verify", stage="script") as verifying:
        verdict = verify(draft, rules)
        if verdict.accepted:
            verdict = verify(draft, needs)
        verifying.set_attribute(ACCEPTED, verdict.accepted)
    return verdict


def invalid_answer(turn: int, error: InvalidAnswer) -> Violation:
    """An answer that stayed invalid, as a violation at the turn where it was wanted; counted as rule `Answer`."""
    return Violation(rule="Answer", turn=turn, code="invalid_answer", message=str(error))
