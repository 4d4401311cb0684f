"""The world of a grounded script as an environment: reset, act, reward.

Deterministic in script, seed and actions; no model is called. Observations are the world's own words (`terse`), as in
runs that a model was tuned on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from os import PathLike
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.matching import meaning
from refinesynth.chat import parse_player, render_act_task, render_task, render_tool_task, render_tools
from refinesynth.episode.ruled_action import Ruled, excuse
from refinesynth.errors import InputError
from refinesynth.run.run_folder import stored_trajectories
from refinesynth.text.thinking import split_thinking
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, Trajectory
from refinesynth.world import Ruling, World, check_solvability
from refinesynth.world.random_starts import as_written, drawn

START_HELP = "clean, the beginning of each world once; mistakes, behind the first mistake of each trajectory; or mixed:0.5, that share of the trajectories behind their mistake."

_WHOLE = 2**64


def share_of_mistakes(start: str) -> float:
    """Share of the trajectories that begin behind their first mistake, of a `start` in the form of `START_HELP`.

    Raises:
        InputError: It has another form.
    """
    if start in {"clean", "mistakes"}:
        return float(start == "mistakes")
    found = re.fullmatch(r"mixed:([01]|0?\.[0-9]+|1\.0*)", start)
    if found is None:
        raise InputError(f"the start is {start!r}; expected clean, mistakes or mixed:0.5 (a share from 0 to 1)")
    return float(found[1])


def behind_mistake(trajectory: Trajectory) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """The turns up to the answer that flags the first mistake; none if the trajectory has no mistake."""
    flagged = (at for at, turn in enumerate(trajectory.turns) if isinstance(turn, DungeonMasterTurn) and turn.flagged)
    at = next(flagged, None)
    return () if at is None else trajectory.turns[: at + 1]


def beginning(trajectory: Trajectory, share: float) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """The turns behind which a play begins, by the share of mistakes and the trajectory's id; none for a clean start."""
    if not share:
        return ()
    drawn = int.from_bytes(blake2b(trajectory.id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return behind_mistake(trajectory) if drawn < share * _WHOLE else ()


class NamedWorld(NamedTuple):
    """A grounded script, and where its plays begin."""

    id: str
    """Id of the first trajectory that was played in it, or of the one whose mistake the play begins behind."""
    script: Script
    before: tuple[PlayerTurn | DungeonMasterTurn, ...] = ()
    """Turns behind which a play begins, see `GroundedEnvironment.reset`."""


def read_worlds(source: str | PathLike[str], start: str = "clean") -> Iterator[NamedWorld]:
    """Yield the worlds of a run folder or a file of trajectories in order; scripts without a rulebook are skipped.

    `start` is `clean`, each world once; `mistakes`, each trajectory behind its first mistake; or `mixed:0.5`, that share
    of the trajectories behind their mistake.

    Raises:
        InputError: It cannot be read, the start is unknown; or, at the end, there is none to begin in.
    """
    share, seen, grounded, none = share_of_mistakes(start), set[str](), False, True
    for one in stored_trajectories(source):
        if one.script.rulebook is None:
            continue
        grounded, before = True, beginning(one, share)
        if before or (share < 1 and one.script.digest not in seen):
            none = False
            if not before:
                seen.add(one.script.digest)
            yield NamedWorld(one.id, one.script, before)
    if none and grounded:
        raise InputError(f"no trajectory in {str(source)!r} has a mistake to begin behind; use the start 'clean'")
    if none:
        raise InputError(
            f"no script in {str(source)!r} is grounded, so none is a world to act in; a run with --play grounded has such"
        )


def find_world(source: str | PathLike[str], wanted: str | None = None, start: str = "clean") -> NamedWorld:
    """The world of a trajectory, or the first one; raises InputError if there is none, or none with such a start."""
    if wanted is None:
        return next(read_worlds(source, start))
    one = next((one for one in stored_trajectories(source) if one.id == wanted), None)
    if one is None:
        raise InputError(
            f"there is no trajectory {wanted!r} in {str(source)!r}; `refinesynth show {source} --list` names them"
        )
    if one.script.rulebook is None:
        raise InputError(f"the script of {wanted!r} is not grounded, so its world cannot be executed")
    before = beginning(one, share_of_mistakes(start))
    if start == "mistakes" and not before:
        raise InputError(f"{wanted!r} has no mistake to begin behind; use the start 'clean', or another id")
    return NamedWorld(one.id, one.script, before)


STEPS = 30
"""Default limit of actions, that of the paper's evaluation (section 4)."""

RECOVERY = 5
"""Default limit of actions until the mistake that a play begins behind is repaired."""

OVER = "It is over; nothing more can be done."

SO_FAR = "What you have done so far, each action behind a >, and what happened:"
"""Line above the turns behind which a play begins."""


Form = Literal["react", "tools", "act"]

_TASKS = {"react": render_task, "tools": render_tool_task, "act": render_act_task}


def tell_task(script: Script, before: Sequence[PlayerTurn | DungeonMasterTurn] = (), form: Form = "react") -> str:
    """The first user message of a play, with the turns that it begins behind."""
    task = _TASKS[form](script)
    history = [f"> {turn.action}" if isinstance(turn, PlayerTurn) else turn.observation for turn in before]
    return "\n".join((task, "", SO_FAR, *history)) if history else task


class GroundedEnvironment:
    """One world, played repeatedly. Instances are independent and can be pickled, also during a play."""

    def __init__(self, script: Script, *, steps: int = STEPS, slips: float = 0.0, recovery: int = RECOVERY) -> None:
        """Compile the world.

        Args:
            script: A grounded one, such as `trajectory.script`.
            steps: Most actions of a play, refused ones included.
            slips: Share of right actions that fail for a moment, drawn by the seed.
            recovery: Most actions in which the mistake that a play begins behind counts as repaired.

        Raises:
            RulebookError: The script's world cannot be executed.
            ValueError: `steps` is below 1, or `slips` is not in [0, 1).
        """
        if steps < 1 or not 0 <= slips < 1:
            raise ValueError(f"steps is {steps} and slips {slips}; expected 1 or more, and at least 0 and below 1")
        self._written = self.script = script
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
        """Begin a play and return the first user message of `chat` in this form.

        Args:
            seed: Draws the slips, and what the rulebook leaves to chance (`Rulebook.draws`): `script` is then the one
                that was drawn.
            form: Actions as text, as calls, or as the argument of the one function `act`.
            before: Turns of a play in this world, behind which this one begins: they are carried out, cost no steps and
                are no mistakes of this play, and the message tells them. The environment is then the written one.

        Raises:
            ValueError: `before` is no play of this world (an answer's flag is not the world's), reaches the goal, or
                does not end with an answer.
        """
        self._seed = seed
        self.script = as_written(self._written) if before else drawn(self._written, seed)
        self._turns: list[PlayerTurn | DungeonMasterTurn] = []
        self.state: JsonValue = self.script.environment
        self.progress = 0.0
        """Highest share of the goal's conditions so far."""
        self.success = False
        self.taken = 0
        self.mistakes = 0
        self.repeats = 0
        """Refused actions that had been refused in the same state before."""
        self.recovered = False
        """True once the last mistake of `before` is repaired: what it lacked holds, or the goal is reached."""
        self._refused = set[tuple[str, ...]]()
        self._mistake: tuple[str, int | None] | None = None
        self.before = tuple(before)
        self._carry_out(self.before)
        return tell_task(self.script, self.before, form)

    @property
    def done(self) -> bool:
        return self.success or self.taken >= self.steps

    @property
    def turns(self) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
        """Turns of the play so far, without thoughts."""
        return tuple(self._turns)

    def act(self, action: str | Call | Mapping[str, Any]) -> str:
        """Take an action, as text or as a call, and return the observation. Never raises: an unknown action is a mistake.

        A call is a `Call` or a chat completion's `{"name": ..., "arguments": ...}` with arguments as an object.
        """
        if self.done:
            return OVER
        return self.rule(action if isinstance(action, str) else self._text(action))[1].observation

    def reply(self, message: str) -> str:
        """Take a player's message (`chat.parse_player`) and return the observation.

        A message without an action costs a step and is a mistake; the answer says what is wrong with it.
        """
        try:
            # What a model thinks before it speaks may hold actions that it does not take.
            return self.act(parse_player(split_thinking(message).text).action)
        except ValueError as error:
            if self.done:
                return OVER
            self.taken += 1
            self.mistakes += 1
            reason = str(error)
            return f"{reason[:1].upper()}{reason[1:]}."

    def rule(self, action: str) -> tuple[Ruled, DungeonMasterTurn]:
        """Take an action's text, also after the last step; return the ruling and the answer for the record."""
        ruling = self.world.step(self.state, action)
        # A failure by chance keeps the present progress, which may be lower than the highest so far.
        present = self.world.progress(self.state)
        ruled = Ruled(action, ruling, (), present, self._excuse(action, ruling))
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
        """Reward of the play so far, by default 1 for success, else 0.

        `success` if the goal is reached, plus `progress` times the highest share of its conditions, plus `recovered` if
        the mistake that the play began behind is repaired within `recovery` actions; less `mistake` per refused action,
        `repeat` per action that had been refused in the same state before, and `length` per action.
        """
        gained = success * self.success + progress * self.progress + recovered * self.recovered
        return gained - mistake * self.mistakes - repeat * self.repeats - length * self.taken

    def tools(self) -> list[dict[str, Any]]:
        return render_tools(self.script)

    def solution(self) -> tuple[str, ...] | None:
        """Return the shortest known solution, or one that the search finds from a later state; None if none is found."""
        script = self.script
        if self.state is not script.environment and script.rulebook is not None:
            bare = script.rulebook.model_copy(update={"solution": ()})
            script = script.model_copy(update={"environment": self.state, "rulebook": bare})
        return check_solvability(script).shortest

    def __getstate__(self) -> dict[str, Any]:
        # What is compiled stays behind, and is made again.
        return {name: value for name, value in vars(self).items() if name != "world"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.world = World(self.script)

    def _enter(self, action: str, ruling: Ruling) -> None:
        """Go on in the state after a ruling, and note repeated and repaired mistakes."""
        key = meaning(self.script, action)
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
        """Return whether what a mistake lacked holds now; a slip of form is repaired by an action that is accepted."""
        read = self.world.read(mistake)
        if read is None or requirement is None:
            return ruling.kind is None
        action, values = read
        return action.requires[requirement].condition.answer(self.state, values) is True

    def _carry_out(self, before: Sequence[PlayerTurn | DungeonMasterTurn]) -> None:
        for at, (turn, answer) in enumerate(pairwise(before), 1):
            if not isinstance(turn, PlayerTurn) or not isinstance(answer, DungeonMasterTurn) or answer.transient:
                continue
            read = self.world.read(turn.action)
            unmet = read[0].unmet(self.state, read[1]) if read else None
            ruling = self.world.step(self.state, turn.action)
            if ruling.kind is not answer.mistake_kind:
                says, is_ = (answer.mistake_kind or "right", ruling.kind or "right")
                raise ValueError(
                    f"turn {at} of the play to begin behind, {turn.action[:80]!r}, is {says} in its record and {is_} in "
                    "this world; expected the turns of a play in this world"
                )
            self._enter(turn.action, ruling)
            if ruling.kind is not None:
                self._mistake, self.recovered = (turn.action, unmet.at if unmet else None), False
        if self.success or (before and isinstance(before[-1], PlayerTurn)):
            wrong = "reach the goal" if self.success else "end with an action"
            raise ValueError(
                f"the turns to begin behind {wrong}; expected ones up to an answer, with the goal still open"
            )
        if self.recovered:
            self._mistake, self.recovered = None, False
        self.repeats = 0
        self._turns += before

    def _text(self, call: Call | Mapping[str, Any]) -> str:
        if not isinstance(call, Call):
            arguments = call.get("arguments")
            call = Call(str(call.get("name", "")), arguments if isinstance(arguments, Mapping) else {})
        return text_of(self.script, call)

    def _excuse(self, action: str, ruling: Ruling) -> str | None:
        """The excuse of an action that slips; only effective actions do, and never twice in a row."""
        if ruling.kind is not None or ruling.state is self.state:
            return None
        return excuse(self._turns, action, self.slips, seed=self._seed)
