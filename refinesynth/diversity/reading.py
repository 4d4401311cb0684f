"""The texts of a trajectory and its script, each with where it is."""

from collections.abc import Iterator

from pydantic import JsonValue

from refinesynth.trajectory import PlayerTurn, Script, Trajectory


def texts(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """The texts of a trajectory, each with where it is; of its player's actions also their sequence."""
    yield from _script_texts(trajectory.script)
    for number, turn in enumerate(trajectory.turns, start=1):
        yield f"turn {number} thought", turn.thought
        if isinstance(turn, PlayerTurn):
            yield f"turn {number} action", turn.action
        else:
            yield f"turn {number} observation", turn.observation
    yield "actions", "\n".join(turn.action for turn in trajectory.turns if isinstance(turn, PlayerTurn))


def _script_texts(script: Script) -> Iterator[tuple[str, str]]:
    """The same of a script; of its environment all keys and texts in a row."""
    yield "introduction", script.introduction
    yield "goal", script.goal
    for number, condition in enumerate(script.completion_conditions, start=1):
        yield f"completion condition {number}", condition
    for action in script.actions:
        yield f"action {action.name}", f"{action.name}\n{action.description}"
    yield "environment", "\n".join(_words_in(script.environment))


def _words_in(environment: JsonValue) -> Iterator[str]:
    stack = [environment]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            for key, value in reversed(item.items()):
                stack += (value, key)
        elif isinstance(item, list):
            stack.extend(reversed(item))
