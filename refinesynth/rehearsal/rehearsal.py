"""The rehearsal backend: a completion function that plays all roles offline, deterministically."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from pydantic import JsonValue

from refinesynth.actions.calls import call_of
from refinesynth.actions.functions import action_of
from refinesynth.chat import render_player
from refinesynth.rehearsal import dungeon_master, narrator, player, script_writer, unknown_scripts
from refinesynth.rehearsal.injected_faults import Faults, Luck
from refinesynth.rehearsal.minimal_json import instance
from refinesynth.rehearsal.openai_wire import Form, Request, completion, drawn, dumped, items
from refinesynth.settings.mistakes import MistakeRequest, RepairStyle
from refinesynth.trajectory import ActionSpec, MistakeKind

GREETING = (
    "This is the rehearsal of refinesynth: a small offline player of text worlds, and no language model. It answers the "
    "requests of refinesynth's roles; of anything else it understands only the form."
)
"""Answer to a request of an unknown role."""


@dataclass(frozen=True)
class Rehearsal:
    """Completion function with `litellm.acompletion`'s signature that plays all roles.

    An answer depends only on the messages, the request's `seed` and form (schema, tools, `max_tokens`) and these
    settings, so it is the same in any order and process, and over HTTP. It never raises and never streams.

    Worlds are executed by `refinesynth.world`, which determines rulings and plans.
    """

    faults: Faults = field(default_factory=Faults)
    seed: int = 0

    async def __call__(self, model: object = "rehearsal", messages: object = (), **options: Any) -> dict[str, Any]:
        return self.answer(model, messages, options)

    def answer(self, model: object, messages: object, options: Mapping[str, object]) -> dict[str, Any]:
        request = Request.read(model, messages, options)
        luck = request.luck(self.faults, self.seed)
        if request.plays_by_calls:
            return self._called(request, luck)
        content = self._content(request, luck)
        if content is not None:
            return completion(request, content, luck)
        if (
            request.form.kind == "tool"
            and not request.form.insisted
            and request.messages
            and request.messages[-1][0] == "tool"
        ):
            # After a tool's result, the client expects text, not the same call again.
            request = replace(request, form=Form("text"))
        return completion(request, _greeting(request.form), luck)

    def _content(self, request: Request, luck: Luck) -> str | None:
        messages = request.messages
        task = next((at for at, (role, text) in enumerate(messages) if role == "user" and player.is_task(text)), None)
        if task is not None:
            return self._played(request, luck, task)
        found = self._grounded(request, luck) or self._structured(request, luck) or _rated(request.blocks, luck)
        if found is None:
            return None
        kind, data = found
        if luck.strikes("missing_keys"):
            data = without_a_key(luck, kind, data)
        text = dumped(data)
        if luck.strikes("invalid_json"):
            return unreadable(luck, kind, text)
        fenced = request.form.kind == "text" and luck.pick("fence", (False, False, True))
        return f"```json\n{text}\n```" if fenced else text

    def _called(self, request: Request, luck: Luck) -> dict[str, Any]:
        seen = player.read_calls(request)
        turn = player.act(luck, seen.task, seen.chat, wanted := _asked_in(request))
        further = player.further(luck, seen, turn, wanted) if seen.several else ()
        calls = [call_of(seen.script, action) for action in (turn.action, *further)]
        return completion(request, turn.thought, luck, () if luck.strikes("invalid_json") else calls)

    def _played(self, request: Request, luck: Luck, task: int) -> str:
        turn = player.act(luck, request.messages[task][1], request.messages[task + 1 :], _asked_in(request))
        if luck.strikes("invalid_json"):
            return f"Thought: {turn.thought}"
        return (
            render_player(turn)
            if request.form.kind == "text"
            else dumped({"thought": turn.thought, "action": turn.action})
        )

    def _grounded(self, request: Request, luck: Luck) -> tuple[str, dict[str, Any]] | None:
        blocks = request.blocks
        if "action" in blocks and isinstance(ruling := blocks.get("ruling"), dict):
            return "words", dungeon_master.word(
                luck, blocks.get("script"), blocks.get("history"), blocks["action"], ruling
            )
        if "action" in blocks and "result" in blocks:
            return "completion", unknown_scripts.see_completion(blocks.get("script"), blocks.get("history"))
        if isinstance(persona := blocks.get("persona"), str) and isinstance(wanted := blocks.get("wanted"), dict):
            if tools := _tools_in(blocks):
                least = next(iter(items(wanted.get("actions"))), 6)
                count = min(least, 100) if isinstance(least, int) else 6
                return "grounded script", unknown_scripts.write_for_tools(tools, count, grounded=True)
            asked = dumped({name: value for name, value in wanted.items() if name != "step"})
            scene = drawn(self.faults, self.seed, request.seed, persona, dumped(blocks.get("violations")), asked)
            return script_writer.write_grounded(luck, scene, persona, wanted, blocks)
        return None

    def _structured(self, request: Request, luck: Luck) -> tuple[str, dict[str, Any]] | None:
        blocks = request.blocks
        script = blocks.get("script")
        if "script" in blocks and "action" in blocks:
            turn = dungeon_master.narrate(luck, script, blocks.get("history"), blocks["action"])
            return "ruling", turn.model_dump(mode="json", exclude={"role"})
        if "script" in blocks and ("verified" in blocks or "minimum" in blocks):
            turns = narrator.tell(luck, script, blocks.get("verified"), blocks.get("minimum"))
            return "turns", {"turns": [turn.model_dump(mode="json") for turn in turns]}
        if isinstance(persona := blocks.get("persona"), str):
            if tools := _tools_in(blocks):
                return "script", unknown_scripts.write_for_tools(tools, 6, grounded=False)
            violations = blocks.get("violations")
            scene = drawn(self.faults, self.seed, request.seed, persona, dumped(violations))
            return "script", script_writer.write(luck, scene, persona, blocks.get("previous"))
        if "script" in blocks and "trajectory" in blocks:
            return "judgement", {"reason": "The world was executed, so it is consistent.", "accepted": True}
        return None


def _rated(blocks: Mapping[str, JsonValue], luck: Luck) -> tuple[str, dict[str, Any]] | None:
    """Return the verdict on one turn: an action is right if it is listed."""
    if "task" not in blocks or not isinstance(turn := blocks.get("turn"), dict):
        return None
    seen = unknown_scripts.judge_plainly(luck, blocks["task"], (), str(turn.get("action")))
    return "judgement", {"reason": seen.thought, "accepted": not seen.flagged}


def _tools_in(blocks: Mapping[str, JsonValue]) -> list[ActionSpec]:
    """Return the tools for a ScriptWriter."""
    return list(filter(None, (action_of({"function": tool}) for tool in items(blocks.get("tools")))))


def _asked_in(request: Request) -> MistakeRequest | None:
    """Return the request in the Player's private note, if it is known."""
    private = request.blocks.get("private")
    if not isinstance(private, dict):
        return None
    kind, way = private.get("slip"), private.get("way", "fresh")
    if kind not in list(MistakeKind) or way not in get_args(RepairStyle):
        return None
    return MistakeRequest(MistakeKind(kind), cast("RepairStyle", way))


def _greeting(form: Form) -> str:
    if form.kind == "text":
        return GREETING
    return dumped({"answer": GREETING} if form.schema is None else instance(form.schema))


_PROSE = (
    "I would rather describe this in my own words than as data. There is a lot to be said about it.",
    "Certainly! Before I answer, could you tell me a little more about what you have in mind?",
    "Let me think about that first. It depends on several things, and I am not sure about all of them.",
)

_REQUIRED = {
    "script": ("environment", "goal", "completion_conditions", "actions"),
    "grounded script": ("environment", "goal", "completion_conditions", "actions", "rulebook"),
    "words": ("thought", "observation"),
    "ruling": ("thought", "observation", "parameter_error", "place_error", "logic_error"),
    "judgement": ("accepted",),
    "completion": ("thought", "done"),
}
"""Required keys by kind of answer; those of a trajectory belong to its turns."""


def without_a_key(luck: Luck, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without one of its required keys."""
    rng = luck.rng("missing")
    if kind == "turns":
        turns = cast("list[dict[str, Any]]", data["turns"])
        at = rng.randrange(len(turns))
        key = rng.choice([key for key in turns[at] if key != "role"])
        return {"turns": [*turns[:at], _without(turns[at], key), *turns[at + 1 :]]}
    return _without(data, rng.choice(_REQUIRED[kind]))


def unreadable(luck: Luck, kind: str, text: str) -> str:
    """Return prose instead of JSON, or JSON cut off before its required keys."""
    rng = luck.rng("unreadable")
    if rng.random() < 0.5:  # noqa: PLR2004 - either as often as the other
        return rng.choice(_PROSE)
    if kind == "turns":
        # JSON that lacks only its closing brackets could still be repaired.
        return text[: min(rng.randrange(len(text) // 4, len(text)), text.rfind(',"observation":'))]
    # An answer's first value is a text, and its required keys follow.
    return text[: rng.randrange(12, 24)]


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}
