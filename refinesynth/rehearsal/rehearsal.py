"""The rehearsal backend: a completion function that plays all roles offline, deterministically."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from pydantic import JsonValue

from refinesynth.actions.calls import call_of
from refinesynth.actions.functions import action_of
from refinesynth.chat import render_player
from refinesynth.rehearsal import dungeon_master, narrator, player, script_writer, unknown_scripts
from refinesynth.rehearsal.injected_faults import Draws, Faults
from refinesynth.rehearsal.openai_wire import Form, Request, completion, draws_of, dumps, items
from refinesynth.settings.mistakes import MistakeRequest, RepairStyle
from refinesynth.trajectory import MistakeKind

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
        draws = request.draws(self.faults, self.seed)
        if request.plays_by_calls:
            return self._play_by_calls(request, draws)
        messages = request.messages
        task = next((i for i, (role, text) in enumerate(messages) if role == "user" and player.is_task(text)), None)
        if task is not None:
            return completion(request, self._play_as_text(request, draws, task), draws)
        if (role_answer := self._answer_role(request, draws)) is not None:
            return completion(request, _faulty_text(request, draws, *role_answer), draws)
        called = request.form.kind == "tool" and not request.form.required and messages and messages[-1][0] == "tool"
        if called or request.form.kind == "text":
            # After a tool's result, the client expects text, not the same call again.
            return completion(replace(request, form=Form("text")), GREETING, draws)
        return completion(request, dumps({"answer": GREETING}), draws)

    def _play_by_calls(self, request: Request, draws: Draws) -> dict[str, Any]:
        view = player.read_calls(request)
        turn = player.act(draws, view.task, view.chat, wanted := _mistake_request(request))
        further = player.further_calls(draws, view, turn, wanted) if view.parallel else ()
        calls = [call_of(view.script, action) for action in (turn.action, *further)]
        return completion(request, turn.thought, draws, () if draws.has_fault("invalid_json") else calls)

    def _play_as_text(self, request: Request, draws: Draws, task: int) -> str:
        turn = player.act(draws, request.messages[task][1], request.messages[task + 1 :], _mistake_request(request))
        if draws.has_fault("invalid_json"):
            return f"Thought: {turn.thought}"
        if request.form.kind == "text":
            return render_player(turn)
        return dumps({"thought": turn.thought, "action": turn.action})

    def _answer_role(self, request: Request, draws: Draws) -> tuple[str, dict[str, Any]] | None:
        """Return kind and data of the answer of a role that answers in JSON; None for an unknown role."""
        blocks = request.blocks
        script, history, wanted = map(blocks.get, ("script", "history", "wanted"))
        kind: str = "judgement"
        match blocks:
            case {"persona": str(persona)}:
                kind, data = self._write_script(request, draws, persona, wanted if isinstance(wanted, dict) else None)
            case {"action": action, "ruling": dict(ruling)}:
                kind, data = "words", dungeon_master.word_ruling(draws, script, history, action, ruling)
            case {"action": _, "result": _}:
                kind, data = "completion", unknown_scripts.judge_completion(script, history)
            case {"action": action, "script": _}:
                turn = dungeon_master.narrate(draws, script, history, action)
                kind, data = "ruling", turn.model_dump(mode="json", exclude={"role"})
            case {"script": _, "verified": _} | {"script": _, "minimum": _}:
                turns = narrator.narrate_turns(draws, script, blocks.get("verified"), blocks.get("minimum"))
                kind, data = "turns", {"turns": [turn.model_dump(mode="json") for turn in turns]}
            case {"script": _, "trajectory": _}:
                data = {"reason": "The world was executed, so it is consistent.", "accepted": True}
            case {"task": task, "turn": dict(rated)}:
                judgement = unknown_scripts.judge_form(draws, task, (), str(rated.get("action")))
                data = {"reason": judgement.thought, "accepted": not judgement.flagged}
            case _:
                return None
        return kind, data

    def _write_script(
        self, request: Request, draws: Draws, persona: str, wanted: dict[str, JsonValue] | None
    ) -> tuple[str, dict[str, Any]]:
        blocks = request.blocks
        kind = "script" if wanted is None else "grounded script"
        if tools := [*filter(None, (action_of({"function": tool}) for tool in items(blocks.get("tools"))))]:
            minimum = next(iter(items(wanted and wanted.get("actions"))), 6)
            count = min(minimum, 100) if isinstance(minimum, int) else 6
            return kind, unknown_scripts.write_for_tools(tools, count, grounded=wanted is not None)
        extra = () if wanted is None else (dumps({name: value for name, value in wanted.items() if name != "step"}),)
        scene_draws = draws_of(self.faults, self.seed, request.seed, persona, dumps(blocks.get("violations")), *extra)
        return kind, script_writer.write(draws, scene_draws, persona, blocks.get("previous"), wanted)


def _mistake_request(request: Request) -> MistakeRequest | None:
    """Return the request in the Player's private note, if it is known."""
    private = request.blocks.get("private")
    if not isinstance(private, dict):
        return None
    kind, style = private.get("slip"), private.get("way", "fresh")
    if kind not in list(MistakeKind) or style not in get_args(RepairStyle):
        return None
    return MistakeRequest(MistakeKind(kind), cast("RepairStyle", style))


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


def _faulty_text(request: Request, draws: Draws, kind: str, data: dict[str, Any]) -> str:
    """Return an answer as text, perhaps without one of its required keys, as prose or cut off before its required keys."""
    if draws.has_fault("missing_keys"):
        rng = draws.rng("missing")
        part = rng.choice(data["turns"]) if kind == "turns" else data
        part.pop(rng.choice(_REQUIRED.get(kind) or [key for key in part if key != "role"]), None)
    text = dumps(data)
    if draws.has_fault("invalid_json"):
        rng = draws.rng("unreadable")
        if rng.random() < 0.5:  # noqa: PLR2004 - either as often as the other
            return rng.choice(_PROSE)
        if kind == "turns":
            # JSON that lacks only its closing brackets could still be repaired.
            return text[: min(rng.randrange(len(text) // 4, len(text)), text.rfind(',"observation":'))]
        # An answer's first value is a text, and its required keys follow.
        return text[: rng.randrange(12, 24)]
    fenced = request.form.kind == "text" and draws.pick("fence", (False, False, True))
    return f"```json\n{text}\n```" if fenced else text
