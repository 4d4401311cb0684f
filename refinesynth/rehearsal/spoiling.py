"""Faults of form: JSON that is none, JSON in which something is missing."""

from typing import Any, cast

from refinesynth.rehearsal.faults import Luck

_PROSE = (
    "I would rather describe this in my own words than as data. There is a lot to be said about it.",
    "Certainly! Before I answer, could you tell me a little more about what you have in mind?",
    "Let me think about that first. It depends on several things, and I am not sure about all of them.",
)

_REQUIRED = {
    "script": ("environment", "goal", "completion_conditions", "actions"),
    "grounded script": ("environment", "goal", "completion_conditions", "actions", "rulebook"),
    "world": ("environment", "actions"),
    "goal": ("goal", "completion_conditions", "rulebook"),
    "words": ("thought", "observation"),
    "ruling": ("thought", "observation", "parameter_error", "place_error", "logic_error"),
    "judgement": ("accepted",),
}
"""Keys of an answer that cannot be done without; a trajectory's are those of its turns."""


def without_a_key(luck: Luck, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The answer without one of its required keys, or without one in one of its parts."""
    rng = luck.rng("missing")
    if kind == "turns":
        turns = cast("list[dict[str, Any]]", data["turns"])
        at = rng.randrange(len(turns))
        key = rng.choice([key for key in turns[at] if key != "role"])
        return {"turns": [*turns[:at], _without(turns[at], key), *turns[at + 1 :]]}
    return _without(data, rng.choice(_REQUIRED[kind]))


def unreadable(luck: Luck, kind: str, text: str) -> str:
    """Prose instead of JSON, or JSON that breaks off before its required keys; a trajectory breaks off before the last
    of them.
    """
    rng = luck.rng("unreadable")
    if rng.random() < 0.5:  # noqa: PLR2004 - either as often as the other
        return rng.choice(_PROSE)
    if kind == "turns":
        # Without its brackets alone it could be read all the same.
        return text[: min(rng.randrange(len(text) // 4, len(text)), text.rfind(',"observation":'))]
    # An answer's first value is a text, and its required keys come after.
    return text[: rng.randrange(12, 24)]


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}
