"""Worlds as TRL takes them: public methods are tools, and nothing else is. TRL itself runs in tests/parity."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from samples import SHED_GROUNDED
from transformers.utils import chat_template_utils

from refinesynth.chat import render_act_task
from refinesynth.environments.trl import TextWorld
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.testing import texts, valid_grounded_scripts
from refinesynth.trajectory import Script

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


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 0}, "steps is 0; expected a whole number, 1 or more"),
        ({"slips": 1.0}, "slips is 1.0; expected a share"),
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
