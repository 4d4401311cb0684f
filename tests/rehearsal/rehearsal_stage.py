"""Plays whole episodes by calling the rehearsal in a loop, as the roles do."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth import chat
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, MistakeKind, PlayerTurn, Script, read_turns

Spoken = PlayerTurn | DungeonMasterTurn

SUCCESS = "Task Succeed"

PERFECT = Rehearsal(Faults.none())

SEEDS = st.integers(0, 2**32)

STRANGE = Script.model_validate(
    {
        "introduction": "You stand on the bridge of a ship.",
        "environment": {"ship": {"speed": 0}},
        "goal": "Leave the harbour.",
        "completion_conditions": ["The ship is at sea."],
        "actions": [
            {"name": "set speed to {knots}", "pattern": r"^set speed to (\d+)$", "parameters": {"knots": ["5", "10"]}},
            {"name": "sound horn", "pattern": "^sound horn$"},
            {
                "name": "steer {course}",
                "description": "Turn: slowly",
                "pattern": "^steer (.+)$",
                "parameters": {"course": []},
            },
        ],
    }
)


def always(*faults: str, rate: float = 1.0) -> Rehearsal:
    return Rehearsal(Faults.none().model_copy(update=dict.fromkeys(faults, rate)))


def user(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "\n\n".join(texts)}]


def ask(rehearsal: Rehearsal, messages: object, **options: object) -> dict[str, Any]:
    """A whole completion, as any caller of the function gets it."""
    return asyncio.run(rehearsal(model="rehearsal", messages=messages, **options))


def text(rehearsal: Rehearsal, messages: object, **options: object) -> str:
    return cast("str", ask(rehearsal, messages, **options)["choices"][0]["message"]["content"])


def ask_json(rehearsal: Rehearsal, *texts: str, seed: int | None = 0) -> dict[str, JsonValue]:
    answer = read_json(text(rehearsal, user(*texts), seed=seed))
    assert isinstance(answer, dict)
    return answer


def write_json(rehearsal: Rehearsal, persona: str, *, seed: int | None = 0, **blocks: object) -> dict[str, JsonValue]:
    """The ScriptWriter's answer."""
    extra = [block(value, name) for name, value in blocks.items()]
    return ask_json(rehearsal, "The person:", block(persona, "persona"), *extra, seed=seed)


def write(rehearsal: Rehearsal, persona: str, *, seed: int | None = 0, **blocks: object) -> Script:
    return Script.from_llm(write_json(rehearsal, persona, seed=seed, **blocks))


def act(
    rehearsal: Rehearsal,
    script: Script,
    turns: Sequence[Spoken] = (),
    *,
    mistake: MistakeKind | None = None,
    seed: int = 0,
) -> PlayerTurn:
    messages = [{"role": message.role, "content": message.content} for message in chat.render_turns(script, turns)]
    if mistake is not None:
        messages[-1]["content"] += f"\n\nA private note.\n\n{block({'slip': mistake}, 'private')}"
    return chat.parse_player(text(rehearsal, messages, seed=seed))


def narrate(
    rehearsal: Rehearsal, script: Script, turns: Sequence[Spoken], action: str, *, seed: int = 0
) -> DungeonMasterTurn:
    history = [
        {"action": turn.action, "observation": after.observation, "mistake": after.mistake_kind}
        for turn, after in zip(turns[::2], turns[1::2], strict=True)
        if isinstance(turn, PlayerTurn) and isinstance(after, DungeonMasterTurn)
    ]
    blocks = (block(script, "script"), block(history, "history"), block(action, "action"))
    answer = ask_json(rehearsal, *blocks, seed=seed)
    return DungeonMasterTurn.model_validate({**answer, "role": "DM"})


def tell(
    rehearsal: Rehearsal, script: Script, verified: Sequence[object] = (), *, minimum: int = 2, seed: int = 0
) -> tuple[PlayerTurn | DungeonMasterTurn | MalformedTurn, ...]:
    request = user(block(script, "script"), block(list(verified), "verified"), block(minimum, "minimum"))
    return read_turns(read_json(text(rehearsal, request, seed=seed)))


@dataclass
class Played:
    """A live play."""

    turns: tuple[Spoken, ...]
    asked: tuple[tuple[MistakeKind, MistakeKind | None], ...]
    """Kinds that were asked for, with the kind that the DungeonMaster flagged."""


def play(
    rehearsal: Rehearsal,
    script: Script,
    *,
    mistakes: Mapping[int, MistakeKind] | None = None,
    seed: int = 0,
    most: int = 40,
) -> Played:
    """A live play to its end, with mistakes asked for at these turns of the player."""
    turns: list[Spoken] = []
    asked: list[tuple[MistakeKind, MistakeKind | None]] = []
    for number in range(most):
        wanted = (mistakes or {}).get(number)
        turn = act(rehearsal, script, turns, mistake=wanted, seed=seed + number)
        after = narrate(rehearsal, script, turns, turn.action, seed=seed + number)
        turns += [turn, after]
        if wanted is not None:
            asked.append((wanted, after.mistake_kind))
        if SUCCESS in after.observation:
            break
    return Played(tuple(turns), tuple(asked))


def codes(found: Sequence[Any]) -> list[str]:
    return [violation.code for violation in found]
