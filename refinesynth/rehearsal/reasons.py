"""What an action means in a scene, and why it is wrong, in words."""

from refinesynth.actions.matching import allowed_value, match_pattern
from refinesynth.rehearsal.memory import Position
from refinesynth.trajectory import ActionSpec, MistakeKind
from refinesynth.world import Ruling

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
        return f'There is no "{shown(unknown)}" to do that with.'
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
