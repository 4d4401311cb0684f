"""The world of a grounded script as an environment: reset, act, reward.

Deterministic in script, seed and actions; no model is called. Observations are the world's own words (`terse`), as in
runs that a model was tuned on.
"""

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.calls import Call, text_of
from refinesynth.chat import parse_player, render_task, render_tool_task, render_tools
from refinesynth.episode.ruled import Ruled, excuse, fails, tried_before
from refinesynth.errors import InputError
from refinesynth.run.folder import one_of_each_script, stored_trajectories
from refinesynth.text.thinking import split_thinking
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script
from refinesynth.world import Ruling, World
from refinesynth.world.chance import drawn

_NAMED = 3


class NamedWorld(NamedTuple):
    """A grounded script."""

    id: str
    """Id of the first trajectory that was played in it."""
    script: Script


def read_worlds(source: str | PathLike[str]) -> Iterator[NamedWorld]:
    """Yield the worlds of a run folder or a file of trajectories in order; scripts without a rulebook are skipped.

    Raises:
        InputError: It cannot be read; or, at the end, no script is grounded.
    """
    none = True
    for one in one_of_each_script(stored_trajectories(source)):
        if one.script.rulebook is not None:
            none = False
            yield NamedWorld(one.id, one.script)
    if none:
        raise InputError(
            f"no script in {str(source)!r} is grounded, so none is a world to act in; a run with --play grounded has such"
        )


def find_world(source: str | PathLike[str], wanted: str | None = None) -> NamedWorld:
    """The world of a trajectory, or the first one; raises InputError if there is none."""
    if wanted is None:
        return next(read_worlds(source))
    names: list[str] = []
    for one in stored_trajectories(source):
        if one.id == wanted:
            if one.script.rulebook is None:
                raise InputError(f"the script of {wanted!r} is not grounded, so its world cannot be executed")
            return NamedWorld(one.id, one.script)
        names.append(one.id)
    listed = [*names[:_NAMED], "..."][: len(names)]
    there = f"there are {', '.join(listed)}" if names else "it holds none"
    raise InputError(f"there is no trajectory {wanted!r} in {str(source)!r}; {there}")


STEPS = 30
"""Default limit of actions, that of the paper's evaluation (section 4)."""

OVER = "It is over; nothing more can be done."


class GroundedEnvironment:
    """One world, played repeatedly. Instances are independent and can be pickled, also during a play."""

    def __init__(self, script: Script, *, steps: int = STEPS, slips: float = 0.0) -> None:
        """Compile the world.

        Args:
            script: A grounded one, such as `trajectory.script`.
            steps: Most actions of a play, refused ones included.
            slips: Share of right actions that fail for a moment, drawn by the seed.

        Raises:
            RulebookError: The script's world cannot be executed.
            ValueError: `steps` is below 1, or `slips` is not in [0, 1).
        """
        if steps < 1 or not 0 <= slips < 1:
            raise ValueError(f"steps is {steps} and slips {slips}; expected 1 or more, and at least 0 and below 1")
        self._written = self.script = script
        self.steps = steps
        self.slips = slips
        self.world = World(script)
        self.reset()

    def reset(self, seed: int = 0, *, form: Literal["react", "tools"] = "react") -> str:
        """Begin a play and return the first user message of `chat` in this form.

        `seed` draws the slips, and what the rulebook leaves to chance (`Rulebook.draws`): `script` is then the one that
        was drawn.
        """
        self._seed = seed
        self.script = drawn(self._written, seed)
        self._turns: list[PlayerTurn | DungeonMasterTurn] = []
        self.state: JsonValue = self.script.environment
        self.progress = 0.0
        """Highest share of the goal's conditions so far."""
        self.success = False
        """True once the goal is reached."""
        self.taken = 0
        self.mistakes = 0
        return render_task(self.script) if form == "react" else render_tool_task(self.script)

    @property
    def done(self) -> bool:
        """True if the goal is reached or no step is left."""
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
            said = str(error)
            return f"{said[:1].upper()}{said[1:]}."

    def rule(self, action: str) -> tuple[Ruled, DungeonMasterTurn]:
        """Take an action's text, also after the last step; return the ruling and the answer for the record."""
        ruling = self.world.step(self.state, action)
        ruled = Ruled(action, ruling, (), self.progress, self._excuse(action, ruling))
        answer = ruled.turn("", ruled.text)
        self._turns += [PlayerTurn(thought="", action=action), answer]
        self.taken += 1
        if not ruled.transient:
            self.state = ruling.state
            self.progress = max(self.progress, ruling.progress)
            self.success = ruling.done
            self.mistakes += ruling.kind is not None
        return ruled, answer

    def reward(
        self, *, success: float = 1.0, progress: float = 0.0, mistake: float = 0.0, length: float = 0.0
    ) -> float:
        """Reward of the play so far, by default 1 for success, else 0.

        `success` if the goal is reached, plus `progress` times the highest share of its conditions, less `mistake` per
        refused action and `length` per action.
        """
        return success * self.success + progress * self.progress - mistake * self.mistakes - length * self.taken

    def tools(self) -> list[dict[str, Any]]:
        """The actions as the `tools` of a chat completion."""
        return render_tools(self.script)

    def __getstate__(self) -> dict[str, Any]:
        # What is compiled stays behind, and is made again.
        return {name: value for name, value in vars(self).items() if name != "world"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.world = World(self.script)

    def _text(self, call: Call | Mapping[str, Any]) -> str:
        if isinstance(call, Call):
            return text_of(self.script, call)
        arguments = call.get("arguments")
        return text_of(
            self.script, Call(str(call.get("name", "")), arguments if isinstance(arguments, Mapping) else {})
        )

    def _excuse(self, action: str, ruling: Ruling) -> str | None:
        """The excuse of an action that slips; only effective actions do, and never twice in a row."""
        turn, turns = len(self._turns), tuple(self._turns)
        if ruling.kind is not None or ruling.state is self.state or tried_before(turns, action):
            return None
        if not fails(self.slips, seed=self._seed, replica=0, attempt=1, turn=turn):
            return None
        before = sum(isinstance(one, DungeonMasterTurn) and one.transient for one in turns)
        return excuse(seed=self._seed, replica=0, before=before)
