"""Grounded play: the Player acts, the program executes the world, and a DungeonMaster only words the ruling.

Flags, progress, transient failures and the end are computed, not judged by an LLM. If the words contradict the ruling,
the DungeonMaster is asked once more with the reason; then the rulebook's own text is used, so a weak DungeonMaster
cannot spoil a play.

After a mistake, the planner can be the repairer: it takes the next action of a plan.
"""

from dataclasses import replace
from random import Random
from typing import Any

from anyio import to_thread
from pydantic import JsonValue

from refinesynth.actions.matching import action_key, nearest_action
from refinesynth.backends.backend import Role
from refinesynth.backends.names import PLANNER
from refinesynth.episode.conversation import Conversation, RetryFeedback, Unanswerable
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns, write_script
from refinesynth.episode.ruled_action import RuledAction, transient_failure
from refinesynth.prompts import Kind, Prompts
from refinesynth.roles import DungeonMaster, InvalidAnswer, RulebookWriter
from refinesynth.rules import chains
from refinesynth.rules.name_search import names_of
from refinesynth.rules.observation_words import judge_words
from refinesynth.rules.rule import Rule, Violation, exchanges, rejects, verify
from refinesynth.rules.rulebooks import RulebookCompiles
from refinesynth.settings.grounding import Grounding, choice_of
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.text.formatting import folded, quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, Script, known_exchanges
from refinesynth.trajectory.turns import MAX_OBSERVATION
from refinesynth.world import Ruling, World, check_solvability, plan, world_of
from refinesynth.world.planner import possible_mistakes, remaining_plan

TEMPLATES = frozenset(
    {"rulebook_language", "rulebook_features", "rulebook_variety", "rulebook_writer", "grounded_master"}
)
"""Templates of grounded play only."""

DEFAULT_DIFFICULTY = (6, 12)
"""Default range of the shortest solution's length, in actions."""

_MAX_WORDINGS = 2
_MAX_STATES = 300
"""Maximum number of states in a search for a repair, if no known solution leads to the goal."""


class GroundedPlay(Play):
    """Turn-by-turn play in a world that is executed by the script's rulebook."""

    name = "grounded"
    executed = True

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        """Roles of a play. With `terse`, the rulebook's own text is the answer and no DungeonMaster is asked."""
        return (Role.PLAYER,) if settings.grounding.terse else super().voices(settings)

    def rules(self) -> Rule:
        return chains.grounded()

    def script_rules(self, grounding: Grounding) -> Rule:
        return chains.grounded_script(difficulty=grounding.difficulty or DEFAULT_DIFFICULTY)

    def needs(self) -> Rule:
        return RulebookCompiles()

    def digest(self, prompts: Prompts) -> str:
        return prompts.digest_with(TEMPLATES, Kind.GROUNDED)

    async def write(self, context: EpisodeContext, /) -> Script | None:
        """Return the first script that the script rules accept and whose world can be executed, if any."""
        settings, session = context.settings, context.session
        place = settings.place(session.index)
        wishes: dict[str, JsonValue] = {
            "features": list(settings.grounding.mix.wanted(place, settings.seed)),
            "actions": list(settings.grounding.difficulty or DEFAULT_DIFFICULTY),
        }
        for name, section, root in (("twist", "twists", 11), ("surface", "surfaces", 13), ("device", "devices", 17)):
            # An empty block has no line to draw.
            if lines := [*filter(str.strip, settings.prompts.fill("rulebook_variety", section).splitlines())]:
                wishes[name] = lines[choice_of(len(lines), root=root, index=place, seed=settings.seed)]
        writer = context.actor(
            RulebookWriter, Role.SCRIPT_WRITER, seed=session.seed, tools=context.tools, wanted=wishes
        )
        return await write_script(writer, context, needs=self.needs())

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        return await Grounded(context, script).play(start)


GROUNDED = GroundedPlay()


class Grounded(Conversation):
    """Grounded play of one script. Raises RulebookError on construction: the world cannot be executed."""

    def __init__(self, context: EpisodeContext, script: Script) -> None:
        super().__init__(context, script)
        self.world: World = world_of(script)
        self._latest_state: tuple[Turns, JsonValue] = (), script.environment
        """Latest turns whose state was computed, and that state."""
        self._plan: tuple[str, ...] = ()
        has_words = Role.DUNGEON_MASTER in context.models
        self.dungeon_master = context.actor(DungeonMaster, Role.DUNGEON_MASTER) if has_words else None
        """Role that words the rulings; None to use the rulebook's text without a completion."""

    async def _exchange(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        state = self._state_after(turns)
        act = await self._act(turns, feedback)
        ruling = self.world.step(state, act.action)
        if ruling.problem is not None:
            # No mistake of the player: the rulebook has no ruling.
            message = f"The world has no answer to {quoted(act.action)}: {ruling.problem}. Take a different action."
            violation = Violation(rule="RulebookAnswers", turn=len(turns), code="rulebook_fault", message=message)
            raise Unanswerable((*turns, act), violation)
        if ruling.kind is None and self._is_cycle(turns, act.action, state):
            message = f"{quoted(act.action)} was taken for the third time in the same state. Take another action."
            raise Unanswerable((*turns, act), Violation(rule="Cycle", turn=len(turns), code="cycle", message=message))
        if ruling.action is None and self.settings.match == "lenient":
            ruling = self._with_nearest(act.action, ruling, state)
        ruled = RuledAction(
            action=act.action,
            ruling=ruling,
            visible_before=self.world.visible(state),
            progress_before=self.world.progress(state),
            failure_text=self._transient_failure(turns, act.action, state, ruling),
        )
        return act, await self._put_into_words(act, ruled, turns, feedback)

    def _with_nearest(self, action: str, ruling: Ruling, state: JsonValue) -> Ruling:
        """Return the refusal with the nearest available action, unless its name would reveal something hidden."""
        if (near := nearest_action(self.script, action)) is None:
            return ruling
        text = f"{ruling.text} Did you mean {quoted(near)}?"
        reveals = judge_words(self.world, ruling, self.world.visible(state), text, action=action)
        return ruling if reveals else replace(ruling, text=text)

    def _is_cycle(self, turns: Turns, action: str, state: JsonValue) -> bool:
        """Return whether the action was taken twice in this state since the last mistake or transient failure."""
        taken_at: list[int] = []
        for step in exchanges(turns):
            if step.flagged or step.transient:
                taken_at.clear()
            elif folded(step.player.action) == folded(action):
                taken_at.append(step.turn)
        return len(taken_at) > 1 and sum(self._state_after(turns[:index]) == state for index in taken_at) > 1

    async def _repair(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, ...]:
        """Return the planner's or the repairer's turns; none if there is no plan or a planned turn was taken back.

        A planned turn is the next action of a plan, with a thought in varied words about it and about the mistake.
        Raises Unanswerable: the mistake changed the world, and no plan to the goal is found any more.
        """
        if self.settings.repairer != PLANNER or feedback.player:
            return await super()._repair(turns, feedback)
        act, answer = known_exchanges(turns)[-1]
        index_of_mistake = max(index for index, turn in enumerate(turns) if turn is act)
        before, state = self._state_after(turns[:index_of_mistake]), self._state_after(turns)
        actions = await to_thread.run_sync(plan_to_goal, self.world, turns, state, self._plan)
        if not actions:
            if answer.flagged and before != self._state_after(turns[: index_of_mistake + 2]):
                message = (
                    f"After {quoted(act.action)} no way to the goal is found. Take a different action before that."
                )
                violation = Violation(rule="Planner", turn=index_of_mistake, code="goal_lost", message=message)
                raise Unanswerable(turns[: index_of_mistake + 2], violation)
            return ()
        action, self._plan = actions[0], actions
        # Imported here because it imports the rehearsal's families of worlds.
        from refinesynth.rehearsal.phrasing import say

        # A play and its branches repair in the same words.
        rng = Random(f"{self.session.seed}/{self.number // self.settings.branches}/{len(turns)}")
        ruling = self.world.step(before, act.action)
        looking_back = say(rng, "going_on" if ruling.kind is None else f"understood_{ruling.kind}", hint=ruling.text)
        looking_ahead = say(rng, "repairing", doing=quoted(action))
        return (PlayerTurn(thought=f"{looking_back} {looking_ahead}".strip(), action=action),)

    def _state_after(self, turns: Turns) -> JsonValue:
        """Return the world's state after the turns, computed from the actions only."""
        known, state = self._latest_state
        if turns[: len(known)] != known:
            known, state = (), self.script.environment
        for step in exchanges(turns[len(known) :]):
            if not step.transient:
                state = self.world.step(state, step.player.action).state
        self._latest_state = turns, state
        return state

    def _mistake_request(self, turns: Turns, **known: Any) -> MistakeRequest | None:
        """Return the mistake or repair to request from the player, if any, given the actions that remain in the world
        and the kinds of mistakes that are possible.

        No mistake is requested right after a transient failure. Such a failure counts neither as a mistake nor as a
        repair.
        """
        if turns and isinstance(turns[-1], DungeonMasterTurn) and turns[-1].transient:
            return None
        settled = [step for step in exchanges(turns) if not step.transient]
        state, solution = self._state_after(turns), _solution(self.script)

        def remaining() -> int:
            rest = remaining_plan(self.world, state, solution)
            return max(2, len(solution) - sum(step.accepted for step in settled)) if rest is None else len(rest)

        known |= {"kinds": lambda: self._possible_kinds(turns, state), "remaining": remaining if solution else None}
        return super()._mistake_request(
            tuple(turn for step in settled for turn in turns[step.turn : step.turn + 2]), **known
        )

    def _possible_kinds(self, turns: Turns, state: JsonValue) -> frozenset[MistakeKind]:
        """Return the kinds of mistakes that are possible now with things that the player can know."""
        texts = [self.script.introduction, self.script.goal]
        texts += (turn.observation for turn in turns if isinstance(turn, DungeonMasterTurn))
        names = names_of(self.world)
        known = {*self.world.visible(state), *(name for text in texts for name in names.mentioned(text).values())}
        # Names that stand for no particular thing, such as on, north or 2, are known to everybody.
        known |= {name for name in self.world.names if not names.mentions_in(name)}
        refused = {action_key(self.script, step.player.action) for step in exchanges(turns) if step.flagged}
        return possible_mistakes(self.world, state, known, refused, _solution(self.script))

    def _transient_failure(self, turns: Turns, action: str, state: JsonValue, ruling: Ruling) -> str | None:
        """Return the observation of a transient failure if one is drawn; a mistake and an action without effect never fail."""
        if ruling.kind is not None or ruling.state is state:
            return None
        draw = {"seed": self.session.seed, "replica": self.number, "attempt": self.record.drafts}
        return transient_failure(turns, action, self.settings.grounding.transient, **draw)

    async def _put_into_words(
        self, act: PlayerTurn, ruled: RuledAction, turns: Turns, feedback: RetryFeedback
    ) -> DungeonMasterTurn:
        """Return the ruling in the DungeonMaster's words if they are acceptable, else in the rulebook's."""
        plain = ruled.turn(ruled.thought, ruled.text)
        if self.dungeon_master is None:
            return plain
        reasons = [violation.message for violation in feedback.dungeon_master]
        for _ in range(_MAX_WORDINGS):
            try:
                words = await self.dungeon_master.word(
                    self.script, turns, ruled.action, ruled.to_prompt(), violations=reasons
                )
            except InvalidAnswer:
                break  # `word` has already retried with feedback
            answer = ruled.turn(words.thought, words.observation)
            reasons = self._objections(ruled, words.observation, (*turns, act, answer))
            if not reasons:
                return answer
        return plain.model_copy(update={"plain": True})

    def _objections(self, ruled: RuledAction, observation: str, turns: Turns) -> list[str]:
        """Return the reasons why the words contradict the ruling, or break the run's rules as the last of `turns`."""
        if (length := len(observation)) > MAX_OBSERVATION:
            return [f"It has {length:,} characters; write at most {MAX_OBSERVATION:,}, better one to four sentences."]
        contradictions = judge_words(
            self.world, ruled.ruling, ruled.visible_before, observation, action=ruled.action, transient=ruled.transient
        )
        broken = () if contradictions else verify(self._draft(turns), self.verifier.rules).violations
        last = len(turns) - 1
        return contradictions or [v.message for v in broken if rejects(v) and v.turn == last and v.keeps_prefix]


def plan_to_goal(world: World, turns: Turns, state: JsonValue, planned: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return actions from `state`, the state after `turns`, to the goal; None if none are found.

    The rest of a known plan is preferred: of `planned`, of the author's solution, or of the shortest solution from the
    script check. A search is the last resort.
    """
    known = (planned, *_known_plans(world, turns))
    rests = [rest for actions in dict.fromkeys(known) if (rest := remaining_plan(world, state, actions)) is not None]
    if rests:
        return min(rests, key=len)
    # A known plan usually has all required actions and few others.
    candidates = dict.fromkeys(text for actions in known for text in actions)
    return plan(world, state, candidates=candidates, most=_MAX_STATES) or plan(world, state, most=_MAX_STATES)


def _known_plans(world: World, turns: Turns) -> tuple[tuple[str, ...], ...]:
    """Return the author's solution, its actions that are not done after `turns`, and the shortest known solution."""
    solution, settled = _solution(world.script), (step for step in exchanges(turns) if not step.transient)
    done = [action_key(world.script, step.player.action) for step in settled if step.accepted]
    remaining: list[str] = []
    for text in solution:
        if (action := action_key(world.script, text)) in done:
            done.remove(action)
        else:
            remaining.append(text)
    return solution, tuple(remaining), check_solvability(world.script).shortest or ()


def _solution(script: Script) -> tuple[str, ...]:
    return script.rulebook.solution if script.rulebook else ()
