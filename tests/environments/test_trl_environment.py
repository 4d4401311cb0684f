"""Worlds as TRL takes them: public methods are tools, and nothing else is. TRL itself runs in tests/parity."""

import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHED_GROUNDED
from transformers.utils import chat_template_utils

from refinesynth.actions.calls import Call, call_of
from refinesynth.actions.functions import actions_of
from refinesynth.chat import render_act_task, render_tool_task
from refinesynth.environments import NamedWorld
from refinesynth.environments.trl import TextWorld, world_class, world_classes
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.testing import texts, valid_grounded_scripts
from refinesynth.trajectory import ActionSpec, Script

pytestmark = pytest.mark.train

ROW: dict[str, Any] = {"script": SHED_GROUNDED.model_dump_json(), "id": "x", "band": "easy"}


def schema_of(tool: Callable[..., Any]) -> dict[str, Any]:
    json_schema: Any = vars(chat_template_utils)["get_json_schema"]
    return json_schema(tool)


def solution(script: Script) -> tuple[str, ...]:
    assert script.rulebook is not None
    return script.rulebook.solution


def tools_of(world: object) -> dict[str, Any]:
    """As TRL finds them."""
    found = dict(inspect.getmembers(type(world), predicate=inspect.isfunction))
    return {
        name: getattr(world, name) for name in found if not name.startswith("_") and name not in ("reset", "get_reward")
    }


@given(valid_grounded_scripts())
def test_one_tool_plays_any_world(script: Script) -> None:
    world = TextWorld(length=0.01)
    task = world.reset(script=script.model_dump_json(), id="x", band="easy")
    assert task == render_act_task(script)
    assert "call the function act" in task
    for action in solution(script):
        world.act(action=action)
    assert world.get_reward() == pytest.approx(1.0 - 0.01 * len(solution(script)))
    assert list(tools_of(world)) == ["act"]
    assert schema_of(world.act)["function"]["parameters"]["required"] == ["action"]


@given(texts())
def test_a_world_answers_whatever_it_is_told(said: str) -> None:
    world = TextWorld()
    world.reset(**ROW)
    assert isinstance(world.act(said), str)
    assert world.get_reward() == 0.0


def test_before_a_world_has_begun_there_is_nothing_to_play() -> None:
    with pytest.raises(RuntimeError, match="call reset first"):
        TextWorld().get_reward()


@given(valid_grounded_scripts())
def test_a_class_of_one_world_has_its_actions_as_tools(script: Script) -> None:
    world = world_class(script)()
    assert world.reset(environment="x") == render_tool_task(script)
    tools = tools_of(world)
    for wanted in world._world.tools():
        function = schema_of(tools[wanted["function"]["name"]])["function"]
        for described in function["parameters"]["properties"].values():
            assert described.pop("description")
        function["parameters"].setdefault("required", [])
        wanted["function"]["description"] = " ".join(wanted["function"]["description"].split())
        assert function == wanted["function"]
    for action in solution(script):
        call = call_of(script, action)
        tools[call.name](**call.arguments)
    assert world.get_reward() == 1.0


def test_words_of_python_and_of_trl_are_renamed() -> None:
    action = ActionSpec(
        name="reset {from} {self}",
        pattern=r"reset (?P<from>\w+) (?P<self>\w+)",
        description="Args:\n    from: all of it",
        reveals="Done.",
    )
    script = SHED_GROUNDED.model_copy(update={"actions": (*SHED_GROUNDED.actions, action)})
    world = world_class(script)()
    world.reset()
    schema = schema_of(tools_of(world)["reset_"])["function"]
    assert list(schema["parameters"]["properties"]) == ["from_", "self_"]
    assert schema["description"] == "reset {from} {self}: Args - from: all of it"
    assert world.reset_(from_="a", self_="c") == "Done."


@given(st.dictionaries(st.sampled_from(["thing", "other"]), st.none() | st.integers() | texts()))
def test_arguments_that_are_wrong_are_mistakes(arguments: dict[str, Any]) -> None:
    world = world_class(SHED_GROUNDED, mistake=1.0)()
    world.reset()
    name = call_of(SHED_GROUNDED, solution(SHED_GROUNDED)[-1]).name
    assert isinstance(getattr(world, name)(**arguments), str)
    assert world.get_reward() in (0.0, -1.0)


def test_classes_are_named_after_their_worlds() -> None:
    classes = world_classes([NamedWorld("a", SHED_GROUNDED)], steps=1)
    assert list(classes) == ["a"]
    assert classes["a"]()._world.steps == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 0}, "steps is 0; expected a whole number, 1 or more"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"slips": 1.0}, "slips is 1.0; expected a share"),
        ({"slips": "often"}, "slips is 'often'"),
        ({"progres": 0.3}, "the reward has no weight progres; there are success, progress"),
        ({"mistake": "some"}, "the weight mistake of the reward is 'some'; expected a finite number"),
        ({"mistake": float("nan")}, "the weight mistake of the reward is nan"),
    ],
)
def test_settings_are_refused_in_words_when_they_are_given(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        TextWorld(**settings)


def test_a_row_that_is_no_script_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"script is no script of .*goal: Field required") as refused:
        TextWorld().reset(script="{}")
    assert "pydantic" not in str(refused.value)


def test_functions_whose_name_begins_with_an_underscore_are_tools() -> None:
    names = ("_find", "__init__")
    specs = actions_of([{"name": name, "parameters": {"type": "object"}} for name in names])
    world = world_class(SHED_GROUNDED.model_copy(update={"actions": (*SHED_GROUNDED.actions, *specs)}))()
    world.reset()
    assert {f"tool{name}" for name in names} <= tools_of(world).keys()
    assert world.tool_find() == "Done."


def test_functions_of_a_user_keep_every_argument_with_its_type() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a-b": {"type": "string"},
            "a_b": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a-b"],
    }
    actions = actions_of([{"name": "find", "description": "Find.", "parameters": parameters}])
    spec = actions[0].model_copy(update={"reveals": "Found."})
    script = SHED_GROUNDED.model_copy(update={"actions": (*SHED_GROUNDED.actions, spec)})
    method = vars(world_class(script))["find"]
    signature = inspect.signature(method)
    assert list(signature.parameters) == ["self", "a_b", "a_b_", "tags"]
    assert [each.default for each in signature.parameters.values()][1:] == [inspect.Parameter.empty, None, None]
    world: Any = world_class(script)()
    world.reset()
    said: list[Any] = []
    world._world = SimpleNamespace(act=said.append)
    world.find(a_b="x", a_b_=3, tags=None)
    assert said == [Call("find", {"a-b": "x", "a_b": 3})]
