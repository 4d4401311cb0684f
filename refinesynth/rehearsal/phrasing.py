"""Wordings of Player and DungeonMaster, recognition of refusals, and reasons of mistakes."""

import re
from collections.abc import Mapping
from importlib.resources import files
from random import Random

from pydantic import TypeAdapter

from refinesynth.actions.matching import match_pattern, unavailable_value
from refinesynth.rehearsal.families import FAMILIES, Family
from refinesynth.rehearsal.replayed_history import Position
from refinesynth.trajectory import ActionSpec, MistakeKind
from refinesynth.world import Ruling

WORDINGS: Mapping[str, tuple[str, ...]] = TypeAdapter(dict[str, tuple[str, ...]]).validate_json(
    (files("refinesynth.rehearsal") / "wordings.json").read_bytes()
)
"""Templates by key. `ruled_...` word given rulings and name the action only."""


_BEGINNINGS = tuple(beginning for family in FAMILIES.values() for beginning in family.refusals)

_REFUSALS = re.compile(r"\s*(?:error\b|invalid\b|nothing happens\b|you (?:can't|cannot|can not)\b)", re.IGNORECASE)
"""Common beginnings of refusals in other environments."""


def say(rng: Random, key: str, **values: object) -> str:
    """Return a random wording with this key, filled."""
    return rng.choice(WORDINGS[key]).format(**values)


def refusal(rng: Random, family: Family, reason: str) -> str:
    return f"{rng.choice(family.refusals)} {reason}".rstrip()


def is_refusal(observation: str) -> bool:
    """Return whether an observation reports a mistake; true for every result of `refusal`."""
    return observation.startswith(_BEGINNINGS) or _REFUSALS.match(observation) is not None


_MAX_SHOWN = 120


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}..."


def infinitive(position: Position, action: str) -> str:
    """Return the meaning of an action as an infinitive; the text itself for an unknown one."""
    ruling = position.ruling(action)
    if ruling.action is None:
        return f'do "{one_line(action)}"'
    verb = position.scene.verbs[ruling.action]
    return ActionSpec(name=verb.doing, pattern=".").fill(ruling.values)


def mistake_reason(position: Position, action: str, ruling: Ruling) -> str:
    """Return the reason of a mistake in one sentence; empty for a right action."""
    if ruling.kind is None:
        return ""
    if ruling.kind is not MistakeKind.PARAMETER:
        return ruling.text
    if (unavailable := unavailable_value(position.scene.script.actions, action)) is not None:
        return f'There is no "{one_line(unavailable[2])}" here.'
    return f'No action is written like "{one_line(action)}".'


def correction(position: Position, wrong_action: str, right_action: str) -> str:
    """Return the correction of a wrong wording: the form of the right action, or its value if only one is wrong; else
    empty.
    """
    ruling = position.ruling(right_action)
    if ruling.action is None:
        return ""
    spec = next(spec for spec in position.scene.script.actions if spec.name == ruling.action)
    captured = match_pattern(spec, wrong_action)
    if captured is None:
        return f'The form is "{spec.name}".'
    names = [name for name, value in captured.items() if value != ruling.values[name]]
    return f'It has to be "{ruling.values[names[0]]}".' if len(names) == 1 else ""
