"""World of a grounded script as an environment: reset, act, reward.

Plays are deterministic in script, seed and actions, without a model. Observations are the rulebook's texts (`terse`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.matching import action_key
from refinesynth.chat import parse_player, render_act_task, render_task, render_tool_task, render_tools
from refinesynth.episode.ruled_action import RuledAction, transient_failure
from refinesynth.errors import InputError
from refinesynth.run.run_folder import stored_trajectories
from refinesynth.text.thinking import split_thinking
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, Trajectory
from refinesynth.trajectory.turns import answered_turns
from refinesynth.world import Ruling, World, check_solvability

START_HELP = "clean, the beginning of each world once; mistakes, behind the first mistake of each trajectory; or mixed:0.5, that share of the trajectories behind their mistake."

_HASH_RANGE = 2**64


def share_of_mistakes(start: str) -> float:
    """Return the share of trajectories with plays that begin behind the first mistake, from a `start` (`START_HELP`).

    Raises:
        InputError: `start` has another form.
    """
    if start in {"clean", "mistakes"}:
        return float(start == "mistakes")
    match = re.fullmatch(r"mixed:([01]|0?\.[0-9]+|1\.0*)", start)
    if match is None:
        raise InputError(f"the start is {start!r}; expected clean, mistakes or mixed:0.5 (a share from 0 to 1)")
    return float(match[1])


def turns_to_mistake(trajectory: Trajectory) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """Return the turns up to the answer that flags the first mistake; none for a trajectory without a mistake."""
    turns = trajectory.turns
    flagged = (end for end, turn in enumerate(turns, 1) if isinstance(turn, DungeonMasterTurn) and turn.flagged)
    return turns[: next(flagged, 0)]


def turns_before_play(trajectory: Trajectory, share: float) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """Return the turns before a play, drawn by the share of mistakes and the trajectory's id; none for a clean start."""
    if not share:
        return ()
    hashed = int.from_bytes(blake2b(trajectory.id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return turns_to_mistake(trajectory) if hashed < share * _HASH_RANGE else ()


class NamedWorld(NamedTuple):
    """A grounded script with the beginning of its plays."""

    id: str
    """Id of the first trajectory with the script, or of the trajectory with the mistake in `before`."""
    script: Script
    before: tuple[PlayerTurn | DungeonMasterTurn, ...] = ()
    """Turns before the play, as for `GroundedEnvironment.reset`."""


def read_worlds(source: str | PathLike[str], start: str = "clean") -> Iterator[NamedWorld]:
    """Yield the worlds of a run folder or a file of trajectories in order, without scripts that have no rulebook.

    `start` is `clean` for each world once, `mistakes` for each trajectory behind its first mistake, or `mixed:0.5` for
    that share of the trajectories behind their mistake, and the other worlds once.

    Raises:
        InputError: The source cannot be read, the start is unknown, or, at the end, no world was found.
    """
    share, seen, has_grounded, is_empty = share_of_mistakes(start), set[str](), False, True
    for trajectory in stored_trajectories(source):
        if trajectory.script.rulebook is None:
            continue
        has_grounded, before = True, turns_before_play(trajectory, share)
        if before or (share < 1 and trajectory.script.digest not in seen):
            is_empty = False
            if not before:
                seen.add(trajectory.script.digest)
            yield NamedWorld(trajectory.id, trajectory.script, before)
    if is_empty and has_grounded:
        raise InputError(f"no trajectory in {str(source)!r} has a mistake to begin behind; use the start 'clean'")
    if is_empty:
        raise InputError(
            f"no script in {str(source)!r} is grounded, so none is a world to act in; a run with --play grounded has such"
        )


def find_world(source: str | PathLike[str], trajectory_id: str | None = None, start: str = "clean") -> NamedWorld:
    """Return the world of a trajectory, or the first world; raises InputError if there is none with this start."""
    if trajectory_id is None:
        return next(read_worlds(source, start))
    trajectory = next((item for item in stored_trajectories(source) if item.id == trajectory_id), None)
    if trajectory is None:
        raise InputError(
            f"there is no trajectory {trajectory_id!r} in {str(source)!r}; `refinesynth show {source} --list` names them"
        )
    if trajectory.script.rulebook is None:
        raise InputError(f"the script of {trajectory_id!r} is not grounded, so its world cannot be executed")
    before = turns_before_play(trajectory, share_of_mistakes(start))
    if start == "mistakes" and not before:
        raise InputError(f"{trajectory_id!r} has no mistake to begin behind; use the start 'clean', or another id")
    return NamedWorld(trajectory.id, trajectory.script, before)


STEPS = 30
"""Default limit of actions, from the paper's evaluation (section 4)."""

RECOVERY = 5
"""Default limit of actions for the repair of the mistake before the play."""

OVER = "It is over; nothing more can be done."

HISTORY_HEADING = "What you have done so far, each action behind a >, and what happened:"
"""Line above the turns before the play."""


Form = Literal["react", "tools", "act"]

_TASKS = {"react": render_task, "tools": render_tool_task, "act": render_act_task}


def task_message(script: Script, before: Sequence[PlayerTurn | DungeonMasterTurn] = (), form: Form = "react") -> str:
    """Return the first user message of a play, with the turns before the play."""
    task = _TASKS[form](script)
    history = [f"> {turn.action}" if isinstance(turn, PlayerTurn) else turn.observation for turn in before]
    return "\n".join((task, "", HISTORY_HEADING, *history)) if history else task


class GroundedEnvironment:
    """World for repeated plays. Instances are independent and can be pickled, also during a play."""

    def __init__(self, script: Script, *, steps: int = STEPS, slips: float = 0.0, recovery: int = RECOVERY) -> None:
        """Compile the world.

        Args:
            script: A grounded script, such as `trajectory.script`.
            steps: Maximum number of actions in a play, refused ones included.
            slips: Share of right actions that fail transiently, drawn by the seed.
            recovery: Maximum number of actions for the repair of the mistake before the play.

        Raises:
            RulebookError: The script's world cannot be executed.
            ValueError: `steps` is below 1, or `slips` is not in [0, 1).
        """
        if steps < 1 or not 0 <= slips < 1:
            raise ValueError(f"steps is {steps} and slips {slips}; expected 1 or more, and at least 0 and below 1")
        self.script = script
        self.steps = steps
        self.slips = slips
        self.recovery = recovery
        self.world = World(script)
        self.reset()

    def reset(
        self,
        seed: int = 0,
        *,
        form: Form = "react",
        before: Sequence[PlayerTurn | DungeonMasterTurn] = (),
    ) -> str:
        """Begin a play and return its first user message in this form.

        Args:
            seed: Seed of the slips.
            form: Actions as text, as calls, or as the argument of the function `act`.
            before: Turns of an earlier play in this world. They are executed without counting as steps or mistakes of
                this play, and the message lists them.

        Raises:
            ValueError: `before` is no play of this world (the world rules differently on an action), reaches the goal, or
                does not end with an answer.
        """
        self._seed = seed
        self._turns: list[PlayerTurn | DungeonMasterTurn] = []
        self.state: JsonValue = self.script.environment
        self.progress = 0.0
        """Highest share of the goal's conditions that held at once; behind `before`, since its end."""
        self.success = False
        self.taken = 0
        self.mistakes = 0
        self.repeats = 0
        """Number of refused actions that were refused in the same state before."""
        self.recovered = False
        """True once the last mistake of `before` is repaired: its unmet requirement holds, or the goal is reached."""
        self._refused = set[tuple[str, ...]]()
        self._mistake: tuple[str, int | None] | None = None
        self.before = tuple(before)
        self._replay(self.before)
        self._held = self.world.progress(self.state)
        """Share of the goal's conditions that hold at the beginning of the play."""
        self.progress_before = self.progress
        """Highest share that held at once in `before`; 0 for a clean start."""
        self.progress = self._held if self.before else 0.0
        return task_message(self.script, self.before, form)

    @property
    def done(self) -> bool:
        return self.success or self.taken >= self.steps

    @property
    def turns(self) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
        """Turns of `before` and of the play so far; the play's have no thoughts."""
        return tuple(self._turns)

    def act(self, action: str | Call | Mapping[str, Any]) -> str:
        """Execute an action, as text or as a call, and return the observation. Never raises: an unknown action is a mistake.

        A call is a `Call` or a chat completion's `{"name": ..., "arguments": ...}` with an object as arguments.
        """
        if self.done:
            return OVER
        if isinstance(action, Mapping):
            arguments = action.get("arguments")
            action = Call(str(action.get("name", "")), arguments if isinstance(arguments, Mapping) else {})
        return self.rule(action if isinstance(action, str) else text_of(self.script, action))[1].observation

    def reply(self, message: str) -> str:
        """Execute the action of a player's message (`chat.parse_player`) and return the observation.

        A message without an action costs a step and is a mistake; the observation states the problem.
        """
        try:
            # The thoughts of a reasoning model may mention actions that it does not take.
            return self.act(parse_player(split_thinking(message).text).action)
        except ValueError as error:
            if self.done:
                return OVER
            self.taken += 1
            self.mistakes += 1
            reason = str(error)
            return f"{reason[:1].upper()}{reason[1:]}."

    def rule(self, action: str) -> tuple[RuledAction, DungeonMasterTurn]:
        """Execute an action's text, also after the last step; return the ruling and the DungeonMaster's turn."""
        ruling = self.world.step(self.state, action)
        # Only effective actions slip, and never twice in a row.
        effective = ruling.kind is None and ruling.state is not self.state
        slip = transient_failure(self._turns, action, self.slips, seed=self._seed) if effective else None
        # A transient failure keeps the present progress, which may be lower than `self.progress`.
        ruled = RuledAction(action, ruling, (), self.world.progress(self.state), slip)
        answer = ruled.turn("", ruled.text)
        self._turns += [PlayerTurn(thought="", action=action), answer]
        self.taken += 1
        if not ruled.transient:
            self._enter(action, ruling)
            self.mistakes += ruling.kind is not None
        return ruled, answer

    def reward(
        self,
        *,
        success: float = 1.0,
        progress: float = 0.0,
        mistake: float = 0.0,
        length: float = 0.0,
        recovered: float = 0.0,
        repeat: float = 0.0,
    ) -> float:
        """Return the present reward of the play, by default 1 for success, else 0.

        The reward is `success` if the goal is reached, plus `progress` times the highest share of those conditions that did
        not hold at the beginning of the play, plus `recovered` if the mistake before the play is repaired within
        `self.recovery` actions; less `mistake` per refused action, `repeat` per action that was refused in the same state
        before, and `length` per action.
        """
        # An action that changes nothing must not pay.
        share = max(0.0, self.progress - self._held) / ((1 - self._held) or 1)
        gained = success * self.success + progress * share + recovered * self.recovered
        return gained - mistake * self.mistakes - repeat * self.repeats - length * self.taken

    def tools(self) -> list[dict[str, Any]]:
        return render_tools(self.script)

    def solution(self) -> tuple[str, ...] | None:
        """Return the shortest known solution, or from a later state one that the search finds; None without a solution."""
        script = self.script
        if self.state is not script.environment and script.rulebook is not None:
            bare = script.rulebook.model_copy(update={"solution": ()})
            script = script.model_copy(update={"environment": self.state, "rulebook": bare})
        return check_solvability(script).shortest

    def __getstate__(self) -> dict[str, Any]:
        # The compiled world cannot be pickled; `__setstate__` compiles it again.
        return {name: value for name, value in vars(self).items() if name != "world"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.world = World(self.script)

    def _enter(self, action: str, ruling: Ruling) -> None:
        """Enter the state after a ruling, and count repeated and repaired mistakes."""
        key = action_key(self.script, action)
        if ruling.state is not self.state:
            self._refused.clear()
        if ruling.kind is not None:
            self.repeats += key in self._refused
            self._refused.add(key)
        self.state = ruling.state
        self.progress = max(self.progress, ruling.progress)
        self.success = ruling.done
        if self._mistake is not None and self.taken <= self.recovery:
            self.recovered = self.recovered or ruling.done or self._is_repaired(*self._mistake, ruling)

    def _is_repaired(self, mistake: str, requirement: int | None, ruling: Ruling) -> bool:
        """Return whether a mistake's unmet requirement holds now; without one, any accepted action repairs the mistake."""
        parsed = self.world.read(mistake)
        if parsed is None or requirement is None:
            return ruling.kind is None
        action, values = parsed
        return action.requires[requirement].condition.answer(self.state, values) is True

    def _replay(self, before: Sequence[PlayerTurn | DungeonMasterTurn]) -> None:
        for index, turn, answer in answered_turns(before):
            if answer.transient:
                continue
            parsed = self.world.read(turn.action)
            unmet = parsed[0].first_unmet(self.state, parsed[1]) if parsed else None
            ruling = self.world.step(self.state, turn.action)
            if ruling.kind is not answer.mistake_kind:
                recorded, actual = (answer.mistake_kind or "right", ruling.kind or "right")
                raise ValueError(
                    f"turn {index + 1} of the play to begin behind, {turn.action[:80]!r}, is {recorded} in its record and {actual} in "
                    "this world; expected the turns of a play in this world"
                )
            self._enter(turn.action, ruling)
            if ruling.kind is not None:
                self._mistake, self.recovered = (turn.action, unmet.index if unmet else None), False
        if self.success or (before and isinstance(before[-1], PlayerTurn)):
            problem = "reach the goal" if self.success else "end with an action"
            raise ValueError(
                f"the turns to begin behind {problem}; expected ones up to an answer, with the goal still open"
            )
        if self.recovered:
            self._mistake, self.recovered = None, False
        self.repeats = 0
        self._turns += before
