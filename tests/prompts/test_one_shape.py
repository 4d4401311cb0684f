"""What a prompt asks for, its schema, its example and its reader are one: an answer that obeys is accepted, in every
output mode."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import orjson
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from samples import SHED, dm, player
from scripted import Scripted, as_json

from refinesynth import rules
from refinesynth.chat import INSTRUCTIONS, parse_player, render_turns
from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.roles import DungeonMaster, Judge, Narrator, Player, RulebookWriter, ScriptWriter
from refinesynth.roles.dungeon_master import history
from refinesynth.roles.schemas import GROUNDED_SCRIPT, TURNS, Judgement, Ruling, Words, schema_of
from refinesynth.roles.schemas import SCRIPT as SCRIPT_SCHEMA
from refinesynth.rules.text_form import KEYS
from refinesynth.trajectory import Draft, Persona, PlayerTurn, Script

SHIPPED = Prompts()
PERSONA = Persona(text="a joiner")
MODES = ("native", "tool", "prompted")
TURNS_SHOWN = (player("open box"), dm("It opens."), player("take saw"), dm("There is none.", "place"))
NOTHING: dict[str, Any] = {}
(TOLD,) = drawn(SHIPPED.examples.trajectories, Kind.TRAJECTORIES, 0, most=1)
"""What is shown to a Narrator, with the seed 0."""


class Asking(NamedTuple):
    """What the answer to a prompt is to be."""

    schema: dict[str, Any]
    check: rules.Rule | None = None


def _of(script: Script) -> Draft:
    return Draft(script=script, finished=False)


ASKED: dict[str, Asking] = {
    "script_writer": Asking(SCRIPT_SCHEMA, rules.script()),
    "rulebook_writer": Asking(GROUNDED_SCRIPT, rules.grounded_script()),
    "narrator": Asking(TURNS, rules.strict()),
    "dungeon_master": Asking(schema_of(Ruling)),
    "grounded_master": Asking(schema_of(Words)),
    "judge": Asking(schema_of(Judgement)),
    "turn_judge": Asking(schema_of(Judgement)),
}
"""By the template that asks."""


async def ask(name: str, model: Model) -> Any:
    """The question that a template puts, to this model."""
    writer = RulebookWriter(model, SHIPPED, answers=0, wanted=NOTHING)
    master = DungeonMaster(model, SHIPPED, answers=0)
    match name:
        case "script_writer":
            return await ScriptWriter(model, SHIPPED, answers=0).write(PERSONA)
        case "rulebook_writer":
            return await writer.write(PERSONA)
        case "narrator":
            return await Narrator(model, SHIPPED, answers=0).tell(TOLD.script)
        case "dungeon_master":
            return await master.narrate(SHED, (), "take key")
        case "grounded_master":
            return await master.word(SHED, (), "take key", NOTHING)
        case "turn_judge":
            return await Judge(model, SHIPPED, answers=0).rate(SHED, (), {"action": "take key"})
        case _:
            return await Judge(model, SHIPPED, answers=0).opine(Draft(script=SHED))


_EXAMPLE = re.compile(r"<example(?:_answer)?>\n(.*)\n</example")


def examples(instructions: str) -> list[str]:
    """Every answer that a prompt shows."""
    return _EXAMPLE.findall(instructions)


def answering(text: str | Callable[[str], str], mode: str, *, as_object: bool = False) -> FunctionModel:
    """A model that answers so, or what it makes of its instructions, in the way that the mode has."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = [part.content for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
        said = text if isinstance(text, str) else text("\n\n".join([*asked, info.instructions or ""]))
        if mode != "tool":
            return ModelResponse(parts=[TextPart(said)])
        arguments: Any = orjson.loads(said) if as_object else said
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, arguments)])

    profile = ModelProfile(
        default_structured_output_mode=mode,  # type: ignore[typeddict-item]
        supports_json_schema_output=True,
    )
    return FunctionModel(answer, profile=profile)


async def instructions_of(name: str) -> str:
    seen: list[str] = []

    def note(instructions: str) -> str:
        seen.append(instructions)
        return "{}"

    try:
        await ask(name, answering(note, "native"))
    except Exception:  # noqa: BLE001 - the answer is nothing; what was asked is wanted
        assert seen
    return seen[0]


def in_words(instructions: str) -> list[str]:
    """The keys that a prompt's first words ask for, in their order."""
    asked = re.search(r"with (?:the keys|one key,) (.*?)(?:[.:]|, for|, the last)", instructions.replace("\n", " "))
    assert asked, instructions[:500]
    return re.findall(r"`(\w+)`", asked[1])


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    return root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def out_of_order(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """Keys that a value has in another order than its schema, or that the schema does not have."""
    schema = resolved(schema, root)
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from out_of_order(schema.get("items", NOTHING), item, root)
    if not isinstance(value, dict):
        return
    given = cast("dict[str, Any]", value)
    keys = list(given)
    for variant in (resolved(one, root) for one in schema.get("anyOf", ())):
        if given.get("role") == variant.get("properties", NOTHING).get("role", NOTHING).get("const"):
            yield from out_of_order(variant, given, root)
            return
    named = schema.get("properties")
    if not named:
        return
    if keys != [key for key in named if key in given]:
        yield f"{keys}, not {list(named)}"
    for key, item in given.items():
        yield from out_of_order(named.get(key, NOTHING), item, root)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ASKED)
async def test_an_answer_that_obeys_the_prompt_is_accepted_by_form_and_rules(name: str, mode: str) -> None:
    asking = ASKED[name]
    shown = examples(await instructions_of(name))
    for text in shown or (
        as_json(
            dict.fromkeys(in_words(await instructions_of(name)), False)
            | {"thought": "t", "observation": "o", "reason": "r"}
        ),
    ):
        answer = await ask(name, answering(text, mode))
        if asking.check is None:
            continue
        draft = answer if isinstance(answer, Draft) else _of(answer)
        assert draft.text_error is None
        verdict = rules.verify(draft, asking.check)
        assert verdict.accepted, verdict.violations
    assert bool(shown) == (asking.check is not None), "who writes much is shown how"


@pytest.mark.parametrize("name", ASKED)
async def test_words_schema_and_example_have_the_same_keys_in_the_same_order(name: str) -> None:
    """Constrained decoding writes the schema's order; a model that is shown another one is torn between the two."""
    instructions, schema = await instructions_of(name), ASKED[name].schema
    assert in_words(instructions) == list(schema["properties"])
    for text in examples(instructions):
        assert list(out_of_order(schema, orjson.loads(text), schema)) == []


async def test_state_comes_before_judgement_and_judgement_before_words() -> None:
    order = ["thought", "parameter_error", "place_error", "logic_error", "observation"]
    instructions = await instructions_of("narrator")
    lines = [re.findall(r'"(\w+)":', line) for line in re.findall(r"`(\{\"role.*?\})`", instructions, re.DOTALL)]
    assert lines == [["role", "thought", "action"], ["role", *order]]
    assert list(schema_of(Ruling)["properties"]) == order
    assert [key for key in re.findall(r'"(\w+)"', KEYS) if key not in {"Player", "DM"}] == [*lines[0], *lines[1]]
    assert [list(turn.model_dump(mode="json")) for turn in TURNS_SHOWN[:2]] == lines
    for entry in history(TURNS_SHOWN):
        assert list(entry) == ["action", "thought", "mistake", "observation"]


LISTED = as_json(TURNS_SHOWN)
OBJECT = as_json({"turns": TURNS_SHOWN})
SHAPES = {
    "the object": OBJECT,
    "a bare list": LISTED,
    "the paper's keys": as_json({"Trajectory": [turn.to_paper(at) for at, turn in enumerate(TURNS_SHOWN)]}),
    "the paper's list": as_json([turn.to_paper(at) for at, turn in enumerate(TURNS_SHOWN)]),
    "more beside it": as_json({"notes": ["n"], "turns": TURNS_SHOWN}),
    "the object in a list": f"[{OBJECT}]",
    "a list written down once more": as_json({"turns": LISTED}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_list_of_turns_is_read_bare_and_in_an_object(mode: str, shape: str) -> None:
    text = SHAPES[shape]
    for around in ("{}", "```json\n{}\n```", "Here they are:\n```\n{}\n```\nDone.", "Sure, 4 turns:\n{}\nThat is all."):
        draft = await Narrator(answering(around.replace("{}", text), mode), SHIPPED, answers=0).tell(SHED)
        assert (draft.turns, draft.text_error) == (TURNS_SHOWN, None), around
        assert Draft.from_text(SHED, around.replace("{}", text)).turns == TURNS_SHOWN
    if mode == "tool" and text.startswith("{"):
        model = answering(text, mode, as_object=True)
        assert (await Narrator(model, SHIPPED, answers=0).tell(SHED)).turns == TURNS_SHOWN


async def test_a_player_that_does_as_it_is_told_is_read() -> None:
    """Of the Player nothing is asked but what training sees."""
    shape = "\n".join(line for line in INSTRUCTIONS.splitlines() if re.match(r"(?:Thought|Action): ", line))
    turn = parse_player(shape)
    assert (bool(turn.thought), bool(turn.action)) == (True, True)
    model = Scripted([shape.replace(turn.action, "take key")])
    assert await Player(model.model, SHIPPED).act(render_turns(SHED, ())) == PlayerTurn(
        thought=turn.thought, action="take key"
    )
