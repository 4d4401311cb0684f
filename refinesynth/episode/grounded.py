"""Grounded play: the Player acts, the world is executed, and a DungeonMaster only puts the ruling into words.

Flags, progress, transient failures and the end are the world's: no model has a say in them. Words that contradict the
ruling are refused once, with the reason; then the world's own plain words stand in, so that a weak DungeonMaster cannot
spoil a play.
"""

from dataclasses import replace
from random import Random
from typing import Any

from anyio import to_thread
from pydantic import JsonValue

from refinesynth.actions.matching import meaning, nearest
from refinesynth.actions.wording import folded, quoted
from refinesynth.backends.names import PLANNER
from refinesynth.backends.role import Role
from refinesynth.episode.conversation import Conversation, RetryFeedback, Unanswerable
from refinesynth.episode.planner_repairer import first_actions, goal_lost, way_to_goal, worded
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns, write_script
from refinesynth.episode.ruled_action import Ruled, excuse, fails, tried_before
from refinesynth.prompts import Kind, Prompts
from refinesynth.roles import DungeonMaster, InvalidAnswer, RulebookWriter
from refinesynth.rules import chains
from refinesynth.rules.name_search import names_of
from refinesynth.rules.observation_words import judge_words
from refinesynth.rules.rule import Rule, Violation, rejects, verify
from refinesynth.rules.rulebooks import RulebookCompiles
from refinesynth.rules.text_form import MAX_OBSERVATION
from refinesynth.settings.grounding import Grounding, walked
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, Script, known_exchanges
from refinesynth.world import Ruling, World, world_of
from refinesynth.world.expression import json_bytes
from refinesynth.world.planner import actions_left, mistakes_possible

TEMPLATES = frozenset(
    {"rulebook_language", "rulebook_features", "rulebook_variety", "rulebook_writer", "grounded_master"}
)
"""Templates that are read in grounded play alone."""

USUAL = (6, 12)
"""Fewest and most actions of a shortest solution where nothing else is wanted."""

_WORDINGS = 2


class GroundedPlay(Play):
    """As live, in a world that is executed by the rulebook that the script comes with."""

    name = "grounded"
    executed = True

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """The world itself answers in its rulebook's words where that is asked for."""
        return (Role.PLAYER,) if settings.grounding.terse else super().voices(settings)

    def rules(self) -> Rule:
        return chains.grounded()

    def script_rules(self, grounding: Grounding) -> Rule:
        return chains.grounded_script(difficulty=grounding.difficulty or USUAL)

    def needs(self) -> Rule:
        return RulebookCompiles()

    def digest(self, prompts: Prompts) -> str:
        return prompts.digest_with(TEMPLATES, Kind.GROUNDED)

    async def write(self, context: EpisodeContext, /) -> Script | None:
        """First script that the script rules accept and whose world can be executed, if there is one."""
        settings, session = context.settings, context.session
        place = settings.place(session.index)
        wanted: dict[str, JsonValue] = {
            "features": list(settings.grounding.mix.wanted(place, settings.seed)),
            "actions": list(settings.grounding.difficulty or USUAL),
        }
        for name, section, root in (("twist", "twists", 11), ("surface", "surfaces", 13), ("device", "devices", 17)):
            # None of an empty block.
            if lines := [*filter(str.strip, settings.prompts.fill("rulebook_variety", section).splitlines())]:
                wanted[name] = lines[walked(len(lines), root=root, index=place, seed=settings.seed)]
        writer = context.actor(
            RulebookWriter, Role.SCRIPT_WRITER, seed=session.seed, tools=context.tools, wanted=wanted
        )
        return await write_script(writer, context, needs=self.needs())

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        return await Grounded(context, script).play(start)


GROUNDED = GroundedPlay()


class Grounded(Conversation):
    """One grounded script being played. Raises RulebookError, on construction: its world cannot be executed."""

    def __init__(self, context: EpisodeContext, script: Script) -> None:
        super().__init__(context, script)
        self.world: World = world_of(script)
        self._known: tuple[Turns, JsonValue] = (), script.environment
        """The last turns whose state was asked for, and that state."""
        self._planned: tuple[str, ...] = ()
        self._other: str | None = None
        has_words = Role.DUNGEON_MASTER in context.models
        self.dungeon_master = context.actor(DungeonMaster, Role.DUNGEON_MASTER) if has_words else None
        """Role that words the rulings; None keeps the world's own words, without any completion."""

    async def _exchange(self, turns: Turns, taken: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        state = self._state_after(turns)
        act = await self._act(turns, taken)
        ruling = self.world.step(state, act.action)
        if ruling.problem is not None:
            raise Unanswerable((*turns, act), _fault(len(turns), act.action, ruling.problem))
        # With a bound of mistakes, a player that goes round is stuck, which has an option of its own.
        unbounded = self.settings.max_mistakes is None
        if ruling.kind is None and unbounded and self._goes_round(turns, act.action, state):
            message = f"{quoted(act.action)} was taken for the third time in the same state. Take another action."
            raise Unanswerable((*turns, act), Violation(rule="Cycle", turn=len(turns), code="cycle", message=message))
        if ruling.action is None and self.settings.match == "lenient":
            ruling = self._with_nearest(act.action, ruling, state)
        ruled = Ruled(
            action=act.action,
            ruling=ruling,
            before=self.world.visible(state),
            progress_before=self.world.progress(state),
            excuse=self._excuse(turns, act.action, state, ruling),
        )
        return act, await self._worded(act, ruled, turns, taken)

    def _with_nearest(self, action: str, ruling: Ruling, state: JsonValue) -> Ruling:
        """A refusal that names the nearest available action, unless that names what the player cannot know of."""
        if (near := nearest(self.script, action)) is None:
            return ruling
        text = f"{ruling.text} Did you mean {quoted(near)}?"
        told = judge_words(self.world, ruling, self.world.visible(state), text, action=action)
        return ruling if told else replace(ruling, text=text)

    def _goes_round(self, turns: Turns, action: str, state: JsonValue) -> bool:
        """Return whether the action was taken in this state twice since the last mistake or transient failure."""
        same: list[int] = []
        for at, (act, answer) in enumerate(zip(turns[::2], turns[1::2], strict=True)):
            if isinstance(answer, DungeonMasterTurn) and (answer.flagged or answer.transient):
                same.clear()
            elif isinstance(act, PlayerTurn) and folded(act.action) == folded(action):
                same.append(2 * at)
        return len(same) > 1 and sum(self._state_after(turns[:at]) == state for at in same) > 1

    async def play(self, start: Turns = ()) -> Draft | None:
        """As every conversation; but a branch at a mistake is not played if the planner has no other action for it."""
        branch = self.number % self.settings.branches
        if branch and self.settings.repairer == PLANNER and self._is_repaired(start):
            firsts = await to_thread.run_sync(first_actions, self.world, start, self._state_after(start))
            if branch >= len(firsts):
                return None
            self._other = firsts[branch]
        return await super().play(start)

    async def _repair(self, turns: Turns, taken: RetryFeedback) -> tuple[PlayerTurn, ...]:
        """As in every conversation, or by a plan; the player goes on without one, or if a planned turn was taken back.

        Raises Unanswerable: no plan is found any more after a mistake that changed the world.
        """
        if self.settings.repairer != PLANNER or taken.player:
            return await super()._repair(turns, taken)
        act, answer = known_exchanges(turns)[-1]
        tried = max(at for at, turn in enumerate(turns) if turn is act)
        before, state = self._state_after(turns[:tried]), self._state_after(turns)
        action = self._other if len(turns) == self._begun else None
        if action is None:
            way = await to_thread.run_sync(way_to_goal, self.world, turns, state, self._planned)
            if not way:
                if answer.flagged and before != self._state_after(turns[: tried + 2]):
                    raise goal_lost(turns[: tried + 2])
                return ()
            action, self._planned = way[0], way
        # Of a play and its branches, each repairs in the same words.
        draw = Random(f"{self.session.seed}/{self.number // self.settings.branches}/{len(turns)}")
        return (worded(self.world, act.action, before, action, draw),)

    def _place(self, turns: Turns) -> bytes | None:
        return json_bytes(self._state_after(turns), sort=True)

    def _state_after(self, turns: Turns) -> JsonValue:
        """The world's state, from the actions alone."""
        known, state = self._known
        if turns[: len(known)] != known:
            known, state = (), self.script.environment
        for act, answer in zip(turns[len(known) :: 2], turns[len(known) + 1 :: 2], strict=True):
            if isinstance(act, PlayerTurn) and isinstance(answer, DungeonMasterTurn) and not answer.transient:
                state = self.world.step(state, act.action).state
        self._known = turns, state
        return state

    def _asked(self, turns: Turns, **known: Any) -> MistakeRequest | None:
        """As in every conversation, with what the world tells: the actions left to the goal, and the possible mistakes.

        Nothing right after a transient failure, which is to be answered in good faith and counts neither as a mistake
        nor as its repair.
        """
        if turns and isinstance(turns[-1], DungeonMasterTurn) and turns[-1].transient:
            return None
        settled = [
            turn
            for act, answer in zip(turns[::2], turns[1::2], strict=True)
            if not (isinstance(answer, DungeonMasterTurn) and answer.transient)
            for turn in (act, answer)
        ]
        state = self._state_after(turns)
        solution = self.script.rulebook.solution if self.script.rulebook else ()

        def remaining() -> int:
            right = sum(not answer.flagged for answer in settled[1::2] if isinstance(answer, DungeonMasterTurn))
            left = actions_left(self.world, state, solution)
            return max(2, len(solution) - right) if left is None else left

        known |= {"kinds": lambda: self._kinds(turns, state), "remaining": remaining if solution else None}
        return super()._asked(tuple(settled), **known)

    def _kinds(self, turns: Turns, state: JsonValue) -> frozenset[MistakeKind]:
        """The kinds of mistakes that can be made now, with things that the player can know of."""
        said = [self.script.introduction, self.script.goal]
        said += (turn.observation for turn in turns if isinstance(turn, DungeonMasterTurn))
        names = names_of(self.world)
        known = {*self.world.visible(state), *(name for text in said for name in names.mentioned(text).values())}
        # What names no particular thing, such as on, north or 2, is known to everybody.
        known |= {name for name in self.world.names if not names.known_from(name)}
        refused = {
            meaning(self.script, act.action)
            for act, answer in zip(turns[::2], turns[1::2], strict=True)
            if isinstance(act, PlayerTurn) and isinstance(answer, DungeonMasterTurn) and answer.flagged
        }
        solution = self.script.rulebook.solution if self.script.rulebook else ()
        return mistakes_possible(self.world, state, known, refused, solution)

    def _excuse(self, turns: Turns, action: str, state: JsonValue, ruling: Ruling) -> str | None:
        """Excuse if chance lets this action fail for a moment; never twice in a row, never what changes nothing."""
        if ruling.kind is not None or ruling.state is state or tried_before(turns, action):
            return None
        seed = self.session.seed
        share, attempt = self.settings.grounding.transient, self.record.drafts
        if not fails(share, seed=seed, replica=self.number, attempt=attempt, turn=len(turns)):
            return None
        before = sum(isinstance(turn, DungeonMasterTurn) and turn.transient for turn in turns)
        return excuse(seed=seed, replica=self.number, before=before)

    async def _worded(self, act: PlayerTurn, ruled: Ruled, turns: Turns, taken: RetryFeedback) -> DungeonMasterTurn:
        """The ruling in the DungeonMaster's words if they will do, else in the world's own."""
        plain = ruled.turn(ruled.thought, ruled.text)
        if self.dungeon_master is None:
            return plain
        reasons = [violation.message for violation in taken.dungeon_master]
        for _ in range(_WORDINGS):
            try:
                words = await self.dungeon_master.word(
                    self.script, turns, ruled.action, ruled.shown(), violations=reasons
                )
            except InvalidAnswer:
                break  # it got what is wrong, and was asked again, already
            answer = ruled.turn(words.thought, words.observation)
            found = self._contradicts(ruled, words.observation) or self._breaks((*turns, act, answer))
            if not found:
                return answer
            reasons = found
        return plain.model_copy(update={"plain": True})

    def _contradicts(self, ruled: Ruled, observation: str) -> list[str]:
        """Return the objections to an observation as the words for a ruling."""
        if len(observation) > MAX_OBSERVATION:
            return [
                f"It has {len(observation):,} characters; write at most {MAX_OBSERVATION:,}, better one to four sentences."
            ]
        return judge_words(
            self.world, ruled.ruling, ruled.before, observation, action=ruled.action, transient=ruled.transient
        )

    def _breaks(self, turns: Turns) -> list[str]:
        """Return the objections of the run's rules to the last turn, which is the DungeonMaster's."""
        draft, last = self._draft(turns), len(turns) - 1
        found = verify(draft, self.verifier.rules).violations
        return [one.message for one in found if rejects(one) and one.turn == last and one.keeps_prefix]


def _fault(turn: int, action: str, problem: str) -> Violation:
    """The rulebook has no answer: no player's mistake, and not to be recorded as one."""
    message = f"The world has no answer to {quoted(action)}: {problem}. Take a different action."
    return Violation(rule="RulebookAnswers", turn=turn, code="rulebook_fault", message=message)
