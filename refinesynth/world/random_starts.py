"""Random initial states of a rulebook, drawn by a seed."""

from collections.abc import Iterator
from itertools import product
from math import isfinite, prod
from random import Random
from typing import cast

from pydantic import JsonValue

from refinesynth.trajectory import Draw, Script
from refinesynth.world.expression import MAX_STATE_BYTES, is_valid_state
from refinesynth.world.json_pointer import json_equal, put, resolve
from refinesynth.world.rulebook_errors import Inapplicable, RulebookError
from refinesynth.world.text_template import parse_pointer

MAX_OUTCOMES = 64
"""Maximum number of combinations of draws; each one is searched for a solution."""


def draw_start(script: Script, seed: int) -> Script:
    """Return the script with an environment drawn by the seed and without draws; the script itself if it has none.

    The solution is removed unless the environment is the written one. The result is deterministic. Raises RulebookError
    as `check_draws` does.
    """
    draws = _draws(script)
    if not draws:
        return script
    check_draws(script)
    chosen = [Random(f"{seed}/{i}").choices(draw.values, draw.shares or None)[0] for i, draw in enumerate(draws)]
    return _with_values(script, chosen)


def outcomes(script: Script) -> Iterator[tuple[str, Script]]:
    """Yield the other possible environments, each as a description and a script without draws."""
    draws = _draws(script)
    for chosen in product(*(draw.values for draw in draws)):
        drawn = _with_values(script, chosen)
        if drawn.environment is not script.environment:
            yield ", ".join(f"{draw.path} = {value!r}" for draw, value in zip(draws, chosen, strict=True)), drawn


def without_draws(script: Script) -> Script:
    """Return the script without draws, with the written environment."""
    return _with_values(script, ()) if _draws(script) else script


def check_draws(script: Script) -> None:
    """Validate the draws.

    Raises:
        RulebookError: A path does not exist or overlaps with another draw's, the written value is not among the values,
            a drawn environment is too deep or too large, shares do not fit, or there are more than `MAX_OUTCOMES`
            combinations.
    """
    draws = _draws(script)
    if (count := prod(len(draw.values) for draw in draws)) > MAX_OUTCOMES:
        raise RulebookError(f"the draws have {count:,} outcomes; at most {MAX_OUTCOMES} can be proved, so draw less")
    paths: list[tuple[str, ...]] = []
    for number, draw in enumerate(draws, 1):
        name = f"draw {number}, of {draw.path!r}"
        if draw.shares and len(draw.shares) != len(draw.values):
            raise RulebookError(f"{name}: {len(draw.shares)} shares for {len(draw.values)} values; give each one")
        if draw.shares and not (isfinite(sum(draw.shares)) and sum(draw.shares)):
            raise RulebookError(f"{name}: the shares sum to {sum(draw.shares)}; give finite ones, not all of them 0")
        try:
            keys = _keys(draw)
            written = resolve(cast("JsonValue", script.environment), keys)
        except Inapplicable as error:
            raise RulebookError(f"{name}: {error}; draw a value that the environment holds") from None
        if not any(json_equal(written, value) for value in draw.values):
            raise RulebookError(f"{name}: the environment's own {written!r} is none of its values; put it among them")
        if any(keys[: len(previous)] == previous[: len(keys)] for previous in paths):
            raise RulebookError(f"{name}: another draw changes the same value or a part of it; make it one draw")
        paths.append(keys)
    if any(not is_valid_state(cast("JsonValue", drawn.environment)) for _, drawn in outcomes(script)):
        raise RulebookError(f"a drawn environment is too deep or larger than {MAX_STATE_BYTES:,} bytes; draw less")


def _draws(script: Script) -> tuple[Draw, ...]:
    return script.rulebook.draws if script.rulebook is not None else ()


def _keys(draw: Draw) -> tuple[str, ...]:
    return parse_pointer(draw.path, frozenset()).keys(None, {})


def _with_values(script: Script, chosen: tuple[JsonValue, ...] | list[JsonValue]) -> Script:
    state = cast("JsonValue", script.environment)
    for draw, value in zip(_draws(script), chosen, strict=False):
        state = put(state, _keys(draw), value)
    update: dict[str, object] = {"draws": ()}
    if state is not script.environment:
        update["solution"] = ()
    rulebook = script.rulebook and script.rulebook.model_copy(update=update)
    return script.model_copy(update={"environment": state, "rulebook": rulebook})
