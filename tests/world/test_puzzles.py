"""The documented puzzles, executed beside a few lines of Python: any action in any state that is reached gives the same."""

import re
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refinesynth.trajectory import Script
from refinesynth.world import World, check_solvability, ground_actions, replay

_DOCUMENT = Path(__file__).parents[2] / "docs" / "puzzles.md"
PUZZLES = {
    name: Script.from_json(code)
    for name, code in re.findall(
        r"cat > (\w+)\.json <<'END'\n(.*?)\nEND", _DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
    )
}
"""All of them, by the names of their files."""


def _river(state: Any, words: list[str]) -> bool:
    at, cargo = state["at"], words[-1]
    if cargo != "alone" and at[cargo] != state["farmer"]:
        return False
    state["farmer"] = "right" if state["farmer"] == "left" else "left"
    if cargo != "alone":
        at[cargo] = state["farmer"]
    state["eaten"] |= at["goat"] in {at["wolf"], at["cabbage"]} and at["goat"] != state["farmer"]
    return True


def _hanoi(state: Any, words: list[str]) -> bool:
    peg, other = state["pegs"][words[2]], state["pegs"][words[4]]
    if peg is other or not peg or (other and other[-1] < peg[-1]):
        return False
    other.append(peg.pop())
    return True


def _lights(state: Any, words: list[str]) -> bool:
    for lamp in (words[1], *state["beside"][words[1]]):
        state["on"][lamp] ^= True
    return True


def _queue(state: Any, words: list[str]) -> bool:
    line = state["line"]
    if words[0] == "send":
        line.append(line.pop(0))
    else:
        line[:2] = line[1::-1]
    return True


def _market(state: Any, words: list[str]) -> bool:
    good = words[1]
    price = state["price"][good]
    if not state["credit"]:
        return False
    if words[0] == "buy" and state["cash"] < price:
        state["credit"] -= 1
        return False
    if words[0] == "sell" and not state["stock"][good]:
        return False
    sign = 1 if words[0] == "buy" else -1
    state["stock"][good] += sign
    state["cash"] -= sign * price
    state["price"] = {name: old % 4 + 1 for name, old in state["price"].items()}
    return True


def _store(state: Any, words: list[str]) -> bool:
    way, crates = state["ways"][words[1]], state["crates"]
    here, beyond = (f"{state['x'] + far * way['x']} {state['y'] + far * way['y']}" for far in (1, 2))
    if here not in state["squares"] or (here in crates and (beyond not in state["squares"] or beyond in crates)):
        return False
    if here in crates:
        crates.remove(here)
        crates.append(beyond)
    state["x"], state["y"] = state["x"] + way["x"], state["y"] + way["y"]
    return True


MODELS = {
    "river": (_river, 7), "hanoi": (_hanoi, 7), "lights": (_lights, 3), "queue": (_queue, 4), "market": (_market, 7),
    "store": (_store, 5),
}  # fmt: skip
"""A model, and the actions of the best solution that is known."""


@pytest.mark.parametrize("name", MODELS)
def test_a_puzzle_is_what_it_is_in_python(name: str) -> None:
    world, (model, _) = World(PUZZLES[name]), MODELS[name]
    actions, rng = tuple(ground_actions(world)), Random(name)
    for _ in range(50):
        state: Any = world.script.environment
        expected = deepcopy(state)
        for action in rng.choices(actions, k=40):
            ruling = world.step(state, action)
            assert ruling.problem is None
            accepted = model(expected, action.split())
            assert (accepted, ruling.state) == (ruling.kind is None, expected), action
            state = ruling.state


@pytest.mark.parametrize("name", MODELS)
def test_a_puzzle_is_proved_solvable_and_at_fault_in_nothing(name: str) -> None:
    found = check_solvability(PUZZLES[name])
    assert (found.problem, found.faults) == (None, ())
    assert found.shortest is not None
    assert len(found.shortest) == MODELS[name][1]
    assert replay(World(PUZZLES[name]), found.shortest)[-1].done
    assert PUZZLES.keys() == MODELS.keys()
