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

    An answer depends only on the messages, the request's `seed` and form (JSON, tools, `max_tokens`) and these
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
        messages = request.messages
        task = next((at for at, (role, text) in enumerate(messages) if role == "user" and player.is_task(text)), None)
        if task is not None:
            return completion(request, self._played(request, luck, task), luck)
        if (found := self._answered(request, luck)) is not None:
            return completion(request, _faulty_text(request, luck, *found), luck)
        called = request.form.kind == "tool" and not request.form.insisted and messages and messages[-1][0] == "tool"
        if called or request.form.kind == "text":
            # After a tool's result, the client expects text, not the same call again.
            return completion(replace(request, form=Form("text")), GREETING, luck)
        return completion(request, dumped({"answer": GREETING}), luck)

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

    def _answered(self, request: Request, luck: Luck) -> tuple[str, dict[str, Any]] | None:
        """Return kind and data of the answer of a role that answers in JSON; None for an unknown role."""
        blocks = request.blocks
        script, history, wanted = map(blocks.get, ("script", "history", "wanted"))
        kind: str = "judgement"
        match blocks:
            case {"persona": str(persona)}:
                kind, data = self._written(request, luck, persona, wanted if isinstance(wanted, dict) else None)
            case {"action": action, "ruling": dict(ruling)}:
                kind, data = "words", dungeon_master.word(luck, script, history, action, ruling)
            case {"action": _, "result": _}:
                kind, data = "completion", unknown_scripts.see_completion(script, history)
            case {"action": action, "script": _}:
                turn = dungeon_master.narrate(luck, script, history, action)
                kind, data = "ruling", turn.model_dump(mode="json", exclude={"role"})
            case {"script": _, "verified": _} | {"script": _, "minimum": _}:
                turns = narrator.tell(luck, script, blocks.get("verified"), blocks.get("minimum"))
                kind, data = "turns", {"turns": [turn.model_dump(mode="json") for turn in turns]}
            case {"script": _, "trajectory": _}:
                data = {"reason": "The world was executed, so it is consistent.", "accepted": True}
            case {"task": task, "turn": dict(rated)}:
                seen = unknown_scripts.judge_plainly(luck, task, (), str(rated.get("action")))
                data = {"reason": seen.thought, "accepted": not seen.flagged}
            case _:
                return None
        return kind, data

    def _written(
        self, request: Request, luck: Luck, persona: str, wanted: dict[str, JsonValue] | None
    ) -> tuple[str, dict[str, Any]]:
        blocks = request.blocks
        kind = "script" if wanted is None else "grounded script"
        if tools := _tools_in(blocks):
            least = next(iter(items(wanted and wanted.get("actions"))), 6)
            count = min(least, 100) if isinstance(least, int) else 6
            return kind, unknown_scripts.write_for_tools(tools, count, grounded=wanted is not None)
        asked = () if wanted is None else (dumped({name: value for name, value in wanted.items() if name != "step"}),)
        scene = drawn(self.faults, self.seed, request.seed, persona, dumped(blocks.get("violations")), *asked)
        return kind, script_writer.write(luck, scene, persona, blocks.get("previous"), wanted)


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


def _faulty_text(request: Request, luck: Luck, kind: str, data: dict[str, Any]) -> str:
    """Return an answer as text, perhaps without one of its required keys, as prose or cut off before its required keys."""
    if luck.strikes("missing_keys"):
        rng = luck.rng("missing")
        part = rng.choice(data["turns"]) if kind == "turns" else data
        part.pop(rng.choice(_REQUIRED.get(kind) or [key for key in part if key != "role"]), None)
    text = dumped(data)
    if luck.strikes("invalid_json"):
        rng = luck.rng("unreadable")
        if rng.random() < 0.5:  # noqa: PLR2004 - either as often as the other
            return rng.choice(_PROSE)
        if kind == "turns":
            # JSON that lacks only its closing brackets could still be repaired.
            return text[: min(rng.randrange(len(text) // 4, len(text)), text.rfind(',"observation":'))]
        # An answer's first value is a text, and its required keys follow.
        return text[: rng.randrange(12, 24)]
    fenced = request.form.kind == "text" and luck.pick("fence", (False, False, True))
    return f"```json\n{text}\n```" if fenced else text
