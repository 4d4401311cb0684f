"""The agent loop: an episode whose DungeonMaster is an environment, in the chat that training sees (`refinesynth.chat`)."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, ModelOutput, get_model, get_model_info
from inspect_ai.solver import Generate, Solver, TaskState, solver

from refinesynth.chat import parse_player, render_player, render_task
from refinesynth.evaluate.controls import Act, control_of
from refinesynth.evaluate.environments.environment import Instance, Start, Step
from refinesynth.evaluate.measures import Move, counts
from refinesynth.evaluate.pool import EnvironmentLost, EnvironmentPool, Episode
from refinesynth.text.jsontext import scrub
from refinesynth.text.thinking import split_thinking
from refinesynth.trajectory import ActionSpec, PlayerTurn, Script

RESULT = "episode"
"""Key of the store under which an episode's result is."""

MAX_ACTION = 10_000
"""Characters of an action that an environment is given; the rest is cut off."""

_REFLECT = """\
You did not reach the goal. Look back at what you did: in a few sentences, say what went wrong and what you will do \
differently in the next attempt, which begins again from the start. Write only this."""

_REFLECTIONS = "What you noted after your earlier attempts at this task:\n{notes}"


@dataclass
class Played:
    """One attempt at one instance."""

    moves: list[Move] = field(default_factory=list[Move])
    progress: float = 0.0
    success: bool = False
    stopped: str = ""
    """Why it ended: `done`, `steps`, `context` (the model's window is full), `environment` (it failed twice at one
    action), `no action` (a control has none to take)."""
    measures: Mapping[str, float] = field(default_factory=dict[str, float])


def script_of(start: Start) -> Script:
    """What a player is given before its first action, as the script that training's first message is rendered from."""
    actions = tuple(
        ActionSpec(name=one.name, description=one.description, pattern=".*", parameters=dict(one.parameters))
        for one in start.actions
    )
    return Script(
        introduction=start.introduction, environment={}, goal=start.goal, completion_conditions=(), actions=actions
    )


def first_message(start: Start, *, notes: list[str] | None = None) -> str:
    """The first user message: the task as in training, notes of earlier attempts, and the first observation."""
    parts = [render_task(script_of(start))]
    if notes:
        parts.append(_REFLECTIONS.format(notes="\n".join(f"- {note}" for note in notes)))
    return "\n\n".join([*parts, *filter(None, [start.observation])])


def _opening(start: Start, notes: list[str]) -> Iterator[ChatMessage]:
    """The chat before the player's first turn."""
    yield ChatMessageUser(content=scrub(first_message(start, notes=notes)))
    for one in start.history:
        turn = PlayerTurn(thought=one.thought, action=one.action)
        yield ChatMessageAssistant(content=scrub(render_player(turn)))
        yield ChatMessageUser(content=scrub(one.observation))


@solver
def player(pool: EnvironmentPool, instances: Mapping[str, Instance], *, steps: int, reflexion: int = 0) -> Solver:
    """Play each sample's instance, of the id that the sample has.

    Args:
        pool: Where its environment runs.
        instances: By id.
        steps: Actions of an attempt at most.
        reflexion: Attempts at most; after each that fails the model writes what it learned, which stands in the first
            message of the next (Shinn et al., 2023). 0 and 1 are one attempt; a control has one.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001 - Inspect's own signature
        instance = instances[str(state.sample_id)]
        control = control_of(state)
        act: Act = control or _model
        attempts = 1 if control else max(1, reflexion)
        notes: list[str] = []
        best = Played()
        async with pool.episode(instance) as episode:
            for left in reversed(range(attempts)):
                start = await _reset(episode)
                played = Played() if start is not None else Played(stopped="environment")
                if start is not None:
                    state.messages = list(_opening(start, notes))
                    played.moves += [Move(one.action, one.refused, given=True) for one in start.history[-1:]]
                    await _play(state, episode, act, played, steps)
                best = played if played.success or played.progress >= best.progress else best
                if played.success or not left or start is None:
                    break
                notes.append(await _reflect(state, act, episode))
            faults = list(episode.faults)
        state.completed = True
        state.store.set(RESULT, _result(best, attempts=len(notes) + 1, faults=faults))
        return state

    return solve


async def _reset(episode: Episode) -> Start | None:
    try:
        return await episode.reset()
    except EnvironmentLost:
        return None


async def _play(state: TaskState, episode: Episode, act: Act, played: Played, steps: int) -> None:
    window = _window(state)
    for _ in range(steps):
        output = _writable(await act(state.messages, episode))
        state.output = output
        if output.stop_reason == "model_length" or (output.usage and output.usage.total_tokens > window):
            played.stopped = "context"
            return
        if output.empty:
            played.stopped = "no action"
            return
        state.messages.append(output.message)
        try:
            # What a model thinks before it speaks may stand in its text, and hold actions that it does not take.
            action = parse_player(split_thinking(output.completion).text).action[:MAX_ACTION]
        except ValueError as error:
            # A message without an action costs a turn, as any other mistake does.
            played.moves.append(Move("", failed=True))
            state.messages.append(ChatMessageUser(content=_sentence(str(error)), metadata={"refused": True}))
            continue
        try:
            step = await episode.step(action)
        except EnvironmentLost:
            played.stopped = "environment"
            return
        _enter(played, action, step)
        state.messages.append(ChatMessageUser(content=scrub(step.observation), metadata=_marks(step)))
        if step.done:
            played.stopped = "done"
            return
    played.stopped = "steps"


def _writable(output: ModelOutput) -> ModelOutput:
    """Without lone surrogates, over which the whole log could not be written."""
    if output.choices and scrub(output.completion) != output.completion:
        output.message.content = scrub(output.completion)
        output.completion = scrub(output.completion)
    return output


def _window(state: TaskState) -> float:
    """Tokens of the longest chat that the model is made for, where that is known: transformers goes on beyond it, and
    what it writes then is nothing that the model has learned.
    """
    info = get_model_info(str(state.model))
    return (info and info.context_length) or inf


def _enter(played: Played, action: str, step: Step) -> None:
    played.moves.append(Move(action, failed=step.refused))
    played.progress = max(played.progress, step.progress)
    played.success = step.success
    played.measures = step.measures


def _marks(step: Step) -> dict[str, Any]:
    return {"refused": step.refused, "progress": round(step.progress, 4)}


def _sentence(problem: str) -> str:
    return f"{problem[0].upper()}{problem[1:]}."


async def _reflect(state: TaskState, act: Act, episode: Episode) -> str:
    state.messages.append(ChatMessageUser(content=_REFLECT))
    output = _writable(await act(state.messages, episode))
    state.messages.append(output.message)
    transcript().info({"reflection": output.completion})
    return " ".join(split_thinking(output.completion).text.split())


def _result(played: Played, *, attempts: int, faults: list[str]) -> dict[str, Any]:
    return {
        "success": float(played.success),
        "progress": played.progress,
        "stopped": played.stopped,
        "measures": dict(played.measures),
        "counts": asdict(counts(played.moves)),
        "attempts": attempts,
        "faults": faults,
    }


async def _model(messages: list[ChatMessage], _: Episode) -> ModelOutput:
    return await get_model().generate(messages)
