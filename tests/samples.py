"""Small scripts, turns, drafts and trajectories, made by hand, for all tests."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from anyio.lowlevel import checkpoint

from refinesynth.journal.journal_values import PaidCompletion
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Script,
    Trajectory,
)

POT = Script(
    environment={"shelf": ["pot"]},
    goal="Take the pot.",
    completion_conditions=("the pot is held",),
    actions=(ActionSpec(name="take {item}", pattern=r"^take (\w+)$", parameters={"item": ("pot",)}),),
)
"""The smallest."""

KITCHEN = Script(
    introduction="You are in a small kitchen.",
    environment={"kitchen": {"shelf": ["mug"], "drawer": ["key"]}, "you": {"at": "table"}},
    goal="Put the mug on the table.",
    completion_conditions=("The mug is on the table.",),
    actions=(
        ActionSpec(
            name="go to {place}",
            description="Walk somewhere.",
            pattern=r"^\s*go to (.+?)\s*$",
            parameters={"place": ("shelf", "table", "drawer")},
        ),
        ActionSpec(
            name="take {item} from {place}",
            description="Pick something up.",
            pattern=r"^\s*take (.+?) from (.+?)\s*$",
            parameters={"item": ("mug", "key"), "place": ("shelf", "drawer")},
        ),
        ActionSpec(
            name="put {item} on {place}",
            description="Put down what you hold.",
            pattern=r"^\s*put (.+?) on (.+?)\s*$",
            parameters={"item": ("mug", "key"), "place": ("table",)},
        ),
    ),
)

SHED = Script(
    introduction="You stand in the shed. There are a box and a bench.",
    environment={"shed": {"box": {"open": False, "contents": ["key"]}, "bench": {}}},
    goal="Put the key on the bench.",
    completion_conditions=("the key is on the bench",),
    actions=(
        ActionSpec(
            name="open {thing}",
            description="Opens it.",
            pattern=r"^open (?P<thing>[a-z]+)$",
            parameters={"thing": ("box", "window")},
        ),
        ActionSpec(name="take {thing}", pattern=r"^take (?P<thing>[a-z]+)$", parameters={"thing": ("key", "saw")}),
        ActionSpec(
            name="put {thing} on {place}",
            pattern=r"^put (?P<thing>[a-z]+) on (?P<place>[a-z]+)$",
            parameters={"thing": ("key", "saw"), "place": ("bench",)},
        ),
    ),
)

SHED_GROUNDED = Script.model_validate(
    {
        **SHED.model_dump(mode="json", exclude={"environment", "actions"}),
        "environment": {
            "player": {"holding": []},
            "things": {"box": {"open": False}, "bench": {"open": True}},
            "inside": {"box": ["key"], "bench": []},
        },
        "actions": [
            {
                **SHED.actions[0].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in visible", "kind": "place", "hint": "There is no {thing} here."},
                    {"condition": "!state.things[thing].open", "kind": "logic", "hint": "The {thing} is open already."},
                ],
                "effects": [{"op": "set", "path": "/things/{thing}/open", "value": True}],
                "reveals": "The {thing} opens. In it you see {state:/inside/{thing}}.",
            },
            {
                **SHED.actions[1].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in visible", "kind": "place", "hint": "There is no {thing} here."},
                    {
                        "condition": "!(thing in state.player.holding)",
                        "kind": "logic",
                        "hint": "You hold the {thing} already.",
                    },
                    {
                        "condition": "thing in state.inside.box",
                        "kind": "logic",
                        "hint": "The {thing} is not in the box.",
                    },
                ],
                "effects": [
                    {"op": "move", "from_path": "/inside/box", "path": "/player/holding", "value": "{thing}"},
                ],
                "reveals": "You hold the {thing}.",
            },
            {
                **SHED.actions[2].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in state.player.holding", "kind": "logic", "hint": "You hold no {thing}."},
                ],
                "effects": [
                    {"op": "move", "from_path": "/player/holding", "path": "/inside/{place}", "value": "{thing}"},
                ],
                "reveals": "The {thing} lies on the {place}.",
            },
        ],
        "rulebook": {
            "goal": ["'key' in state.inside.bench"],
            "sights": [
                {"path": "/things"},
                {"path": "/player/holding"},
                {"path": "/inside/{each}", "each": "/things", "when": "state.things[each].open"},
            ],
            "solution": ["open box", "take key", "put key on bench"],
        },
    }
)
"""The shed with a rulebook. The key is hidden until the box is open; there is neither a saw nor a window."""


def with_rulebook(script: Script, **parts: object) -> Script:
    """The script with other parts of its rulebook."""
    assert script.rulebook is not None
    return script.model_copy(update={"rulebook": script.rulebook.model_copy(update=parts)})


def player(action: str, thought: str = "I try this.") -> PlayerTurn:
    return PlayerTurn(thought=thought, action=action)


def dm(observation: str = "", *wrong: str, thought: str = "So it goes.") -> DungeonMasterTurn:
    """`wrong`: the kinds of mistake that it flags, `parameter`, `place`, `logic`; an empty one flags nothing."""
    return DungeonMasterTurn(
        thought=thought,
        observation=observation,
        parameter_error="parameter" in wrong,
        place_error="place" in wrong,
        logic_error="logic" in wrong,
    )


REFINED = (
    player("take mug from shelf", "The mug is on the shelf."),
    dm("You are not at the shelf.", "place"),
    player("go to shelf", "I have to walk there first."),
    dm("You are at the shelf. There is a mug."),
    player("grab mug", "Now I take it."),
    dm("That is no action here.", "parameter"),
    player("take mug from shelf", "The action is called take."),
    dm("You hold the mug."),
    player("put mug on table", "And down it goes."),
    dm("The mug is on the table. Task Succeed."),
)
"""In the kitchen: two mistakes, each repaired."""


def well_formed(turns: Iterable[DraftTurn]) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    return tuple(turn for turn in turns if not isinstance(turn, MalformedTurn))


def provenance(**changes: object) -> Provenance:
    usual = Provenance(
        models={}, play="live", seed=0, rules="strict()", package_version="0", attempts=1, script_attempts=1
    )
    return usual.model_copy(update=changes)


def paid(index: int = 0, **changes: Any) -> PaidCompletion:
    """A completion that the player of this episode was given."""
    usual: dict[str, Any] = {
        "episode": f"{index:06d}",
        "index": index,
        "attempt": 1,
        "role": "player",
        "step": 0,
        "digest": bytes(16),
        "model": "a-model",
        "answer": b'{"text":"take pot"}',
        "input_tokens": 100,
        "cached_tokens": 10,
        "cache_write_tokens": 1,
        "output_tokens": 20,
        "cost_usd": 0.5,
    }
    return PaidCompletion(**usual | changes)


def trajectory(
    *turns: PlayerTurn | DungeonMasterTurn,
    script: Script = KITCHEN,
    id: str = "000000-aaaaaaaa",  # noqa: A002
    persona: str | Persona = "a cook",
    origin: Provenance | None = None,
) -> Trajectory:
    return Trajectory(
        id=id,
        persona=Persona(text=persona) if isinstance(persona, str) else persona,
        script=script,
        turns=turns or REFINED,
        provenance=origin or provenance(),
    )


def accepted(draft: Draft, **fields: Any) -> Trajectory:
    """A draft without its malformed turns as an accepted trajectory."""
    return trajectory(*well_formed(draft.turns), script=draft.script, **fields)


def in_messages(one: Trajectory, chosen: Iterable[bool]) -> Trajectory:
    """The player's turns that are `chosen` are further calls of the message before, if there is one."""
    drawn, played = iter(chosen), False
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for turn in one.turns:
        joined = isinstance(turn, PlayerTurn) and played and next(drawn, False)
        played = played or isinstance(turn, PlayerTurn)
        turns.append(turn.model_copy(update={"thought": "", "parallel": True}) if joined else turn)
    return one.model_copy(update={"turns": tuple(turns)})


def crowded(more: int = 32) -> Script:
    """The shed with so many further actions, none of which is needed."""
    actions = [
        {
            "name": f"turn dial {number} to {{step}}",
            "description": f"Turns dial {number}.",
            "pattern": f"turn dial {number} to (.+)",
            "parameters": {"step": ["low", "high"]},
            "effects": [{"op": "set", "path": f"/dials/d{number}", "value": "{step}"}],
            "reveals": f"Dial {number} shows {{step}}.",
        }
        for number in range(more)
    ]
    shed = SHED_GROUNDED.model_dump(mode="json")
    dials = {f"d{number}": "low" for number in range(more)}
    environment = {**shed["environment"], "dials": dials}
    return Script.model_validate({**shed, "environment": environment, "actions": [*shed["actions"], *actions]})


@dataclass
class Memory:
    """The paid completions of an episode, in memory."""

    kept: dict[tuple[str, int, bytes], PaidCompletion] = field(default_factory=dict[Any, PaidCompletion])

    had_finished = False

    def recall(self, role: str, step: int, digest: bytes) -> PaidCompletion | None:
        return self.kept.get((role, step, digest))

    async def keep(self, *paid: PaidCompletion) -> None:
        await checkpoint()
        for one in paid:
            self.kept[one.role, one.step, one.digest] = one
