"""What the prompts teach of the rulebook language is what the world accepts: taken from the prompts and compiled."""

import json
import re
from typing import Any, cast

import pytest

from refinesynth.prompts import Prompts
from refinesynth.trajectory import EffectOp, MistakeKind, Script
from refinesynth.world import RulebookError, World

TAUGHT = Prompts().fill("rulebook_language", "language")
WRITER = Prompts().fill("rulebook_writer", "instructions", examples=[])

CONDITIONS = (
    "item in visible",
    "state.player.place == 'hall'",
    'state.things["tool box"].open',
    "state.things[item].open",
    "size(state.places[state.player.place].things) > 0",
    "item in state.things && state.things[item].open",
    "has(state.things.lamp)",
    "int(item) > 1",
    "string(1) == item",
    "item.contains('a') || item.startsWith('b') || item.endsWith('c')",
    'item in ["red", "blue"]',
    "state.things.all(x, x != item) || state.things.exists(x, x == item) || state.things.exists_one(x, x == item)",
    "size(state.things.filter(x, state.things[x].open)) % 2 == 0 ? true : false",
)
"""One use of everything that the prompt names."""

REFUSED = ("state.things.map(x, x) == []", "item.matches('a')", "{'a': 1} == state", "true // why", "other == item")


def script(**action: object) -> Script:
    return Script.model_validate(
        {
            "environment": {
                "player": {"place": "hall", "holding": ["lamp"]},
                "places": {"hall": {"things": ["tool box"], "exits": ["yard"]}},
                "things": {"lamp": {"open": True}, "tool box": {"open": True, "looks": "It is red."}},
                "containers": {"tool box": {"open": True, "inside": ["nail"]}},
            },
            "goal": "Go.",
            "completion_conditions": ["gone"],
            "actions": [
                {"name": "use {item}", "pattern": "^use (.+)$", "parameters": {"item": ["tool box"]}, **action}
            ],
            "rulebook": {"goal": ["false"]},
        }
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_condition_that_is_taught_compiles(condition: str) -> None:
    world = World(script(requires=[{"condition": condition}], reveals="Yes."))
    assert world.read("use tool box") is not None


@pytest.mark.parametrize("condition", REFUSED)
def test_what_is_said_not_to_be_there_is_not(condition: str) -> None:
    with pytest.raises(RulebookError):
        World(script(requires=[{"condition": condition}]))


def test_every_name_that_is_taught_is_used_above() -> None:
    named = set(
        re.findall(r"`\.?(size|has|int|string|contains|startsWith|endsWith|all|exists|exists_one|filter)\(", TAUGHT)
    )
    assert named == {name for name in named if any(f"{name}(" in condition for condition in CONDITIONS)}
    assert len(named) == 11
    for kind in MistakeKind:
        assert f"`{kind}`" in TAUGHT
    for op in EffectOp:
        assert f"`{op}`" in TAUGHT


def test_the_paths_and_texts_that_are_taught_are_read() -> None:
    texts = re.findall(r"`([^`]*\{[^`]*|/[^`\n]+)`", TAUGHT)
    assert len(texts) >= 8
    state_free = [
        text
        for text in texts
        if "{thing}" not in text and "{any}" not in text and '{"cel"' not in text and text != "{each}"
    ]
    for text in state_free:
        for path in (text,) if text.startswith("/") and "{each}" not in text else ():
            World(script(effects=[{"op": "set", "path": path, "value": 1}]))
        if not text.startswith("/"):
            World(script(reveals=text))
    look = script(name="examine {thing}", pattern="^examine (.+)$", parameters={"thing": ["tool box"]},
                  reveals="{state:/things/{thing}/looks}")  # fmt: skip
    assert World(look).step(look.environment, "examine tool box").text == "It is red."


def test_what_is_taught_of_calculations_and_of_any_place_works() -> None:
    calculated = [json.loads(text) for text in re.findall(r'`(\{"cel": "[^.][^`]*\})`', TAUGHT)]
    assert len(calculated) == 2
    for value in calculated:
        cel = value["cel"].replace("amount", "item")
        World(script(effects=[{"op": "set", "path": "/n", "value": {"cel": cel}}]))
    (anywhere,) = (text for text in re.findall(r"`([^`\n]+)`", TAUGHT) if text.startswith("/") and "{any}" in text)
    taken = {"op": "move", "from_path": anywhere, "path": "/player/holding", "value": "{item}"}
    given = script(effects=[taken], reveals="You hold {state:/player/holding}.")
    assert World(given).step(given.environment, "use tool box").text == "You hold lamp and tool box."


def test_the_sights_that_are_taught_show_what_they_are_said_to() -> None:
    for path in ("/player/holding", "/places/{state:/player/place}/exits", "/places/{state:/player/place}/things",
                 "/containers/{each}/inside", "each in state.containers && state.containers[each].open"):  # fmt: skip
        assert f"`{path}`" in TAUGHT.replace("\n  ", " ")
    here = "/places/{state:/player/place}/things"
    sights = [
        {"path": "/player/holding"},
        {"path": "/places/{state:/player/place}/exits"},
        {"path": here},
        {
            "path": "/containers/{each}/inside",
            "each": here,
            "when": "each in state.containers && state.containers[each].open",
        },
    ]
    base = script()
    seeing = Script.model_validate({**base.model_dump(mode="json"), "rulebook": {"goal": ["false"], "sights": sights}})
    assert World(seeing).visible(seeing.environment) == ("lamp", "yard", "tool box", "nail")


def test_the_writer_is_told_all_of_it() -> None:
    assert TAUGHT in WRITER
    for feature in ("distractors", "irreversible", "hidden", "preconditions"):
        assert f"- `{feature}`:" in WRITER


DEVICES: dict[str, dict[str, Any]] = {
    "`each_step`": {"rulebook": {"each_step": [{"op": "add", "path": "/n", "value": 1, "when": "state.n < 9"}]}},
    "`else`": {"effects": [
        {"op": "set", "path": "/n", "value": 5, "when": "before.n > 0"}, {"op": "set", "path": "/n", "value": 1, "when": "else"},
    ]},
    "`each`": {"effects": [{"op": "add", "path": "/price/{each}", "value": 1, "each": "/price"},
                           {"op": "set", "path": "/n", "value": {"cel": "state.price.milk - before.price.milk"}}]},
    "`.sum(": {"effects": [{"op": "set", "path": "/n", "value": {"cel": "state.cart.sum(name, state.price[name]) - 1"}}]},
    "`effects`": {"requires": [{"condition": "state.n > 0", "effects": [{"op": "set", "path": "/n", "value": 1}]}]},
    "`reveals`": {"effects": [{"op": "set", "path": "/n", "value": 1}],
                  "reveals": [{"when": "before.n < state.n", "text": "It is {state:/n}."}, {"text": "Nothing."}]},
    "`knows`": {"reveals": "The code is 7.", "effects": [{"op": "set", "path": "/n", "value": 1}],
                "rulebook": {"knows": {"path": "/you/knows", "texts": ["7", "8"]}}},
}  # fmt: skip
"""A use of everything that is drawn for some worlds, which makes the number 1, by words of its line."""


def test_each_device_that_is_drawn_works() -> None:
    lines = Prompts().fill("rulebook_variety", "devices").strip().splitlines()
    assert len(lines) == len(DEVICES)
    for words, use in DEVICES.items():
        (line,) = (
            line
            for line in lines
            if line.startswith((words, f"an effect whose `when` is {words}")) or words in line[:40]
        )
        lines.remove(line)
        rulebook = {"goal": ["false"], **use.get("rulebook", {})}
        given = script(**{name: value for name, value in use.items() if name != "rulebook"}).model_dump(mode="json")
        given["environment"] |= {"n": 0, "price": {"milk": 2}, "cart": ["milk"], "you": {"knows": []}}
        world = World(Script.model_validate({**given, "rulebook": rulebook}))
        ruling = world.step(world.script.environment, "use tool box")
        state = cast("Any", ruling.state)
        assert (ruling.problem, state["n"]) == (None, 1), line
        assert state["you"]["knows"] == (["7"] if words == "`knows`" else [])
        assert ruling.text == {"`reveals`": "It is 1.", "`knows`": "The code is 7."}.get(words, ruling.text)
    assert not lines
