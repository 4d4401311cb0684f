"""Sentences of Player and DungeonMaster, in several forms each; how observations of mistakes begin, by which they are
known; and what an action means, and why it is wrong, in words.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from random import Random

from pydantic import TypeAdapter

from refinesynth.actions.matching import allowed_value, match_pattern
from refinesynth.rehearsal.families import FAMILIES, Family
from refinesynth.rehearsal.memory import Position
from refinesynth.trajectory import ActionSpec, MistakeKind
from refinesynth.world import Ruling

WORDINGS: Mapping[str, tuple[str, ...]] = TypeAdapter(dict[str, tuple[str, ...]]).validate_json(
    (files("refinesynth.rehearsal") / "wordings.json").read_bytes()
)
"""Templates by key. Those of `ruled_...` are the DungeonMaster's on what an executed world has ruled, and name nothing
but the action."""


_BEGINNINGS = tuple(beginning for family in FAMILIES.values() for beginning in family.refusals)

_STRANGE = re.compile(r"\s*(?:error\b|invalid\b|nothing happens\b|you (?:can't|cannot|can not)\b)", re.IGNORECASE)
"""How other environments than the rehearsal's often answer a mistake."""


def say(rng: Random, key: str, **values: object) -> str:
    """One of the wordings with this key, filled."""
    return rng.choice(WORDINGS[key]).format(**values)


def refusal(rng: Random, family: Family, why: str) -> str:
    """An observation of a mistake."""
    return f"{rng.choice(family.refusals)} {why}".rstrip()


def sounds_refused(observation: str) -> bool:
    """Whether an observation is one of a mistake. True of everything that `refusal` gives."""
    return observation.startswith(_BEGINNINGS) or _STRANGE.match(observation) is not None


_SHOWN = 120
"""How much of a player's text is repeated, in characters."""


def shown(text: str) -> str:
    """A player's text, on one line and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def meaning(position: Position, action: str) -> str:
    """The act as an infinitive; the text itself if it is no action of the scene."""
    ruling = position.ruling(action)
    if ruling.action is None:
        return f'do "{shown(action)}"'
    verb = position.scene.verbs[ruling.action]
    return ActionSpec(name=verb.doing, pattern=".").fill(ruling.values)


def reason(position: Position, action: str, ruling: Ruling) -> str:
    """Why the action is a mistake here, in one sentence that anybody there could say; empty if it is none."""
    if ruling.kind is None:
        return ""
    if ruling.kind is not MistakeKind.PARAMETER:
        return ruling.text
    unknown = _unknown_value(position, action)
    if unknown is not None:
        return f'There is no "{shown(unknown)}" here.'
    return f'No action is written like "{shown(action)}".'


def remedy(position: Position, wrong: str, right: str) -> str:
    """How the right action differs from one that was worded wrongly; empty if they have nothing in common."""
    meant = position.ruling(right)
    if meant.action is None:
        return ""
    spec = next(spec for spec in position.scene.script.actions if spec.name == meant.action)
    captured = match_pattern(spec, wrong)
    if captured is None:
        return f'The form is "{spec.name}".'
    names = [name for name, value in captured.items() if value != meant.values[name]]
    return f'It has to be "{meant.values[names[0]]}".' if len(names) == 1 else ""


def _unknown_value(position: Position, action: str) -> str | None:
    for spec in position.scene.script.actions:
        for name, value in (match_pattern(spec, action) or {}).items():
            if value is not None and allowed_value(spec, name, value) is None:
                return value.strip()
    return None
