"""Agent Trajectory Interchange Format (Harbor's RFC 0001), one document per trajectory.

The task is a user step. A player's turn is an agent step: the thought is its message, the action a call of the tool
`act`, the DungeonMaster's answer its observation. Steps have no `reasoning_content` (for reasoning outside an answer) and
no metrics, which are known for episodes only.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import JsonValue

from refinesynth.chat import render_task
from refinesynth.export.chat_shapes import ExportRecord, Masking
from refinesynth.rules.repairs import marks
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory

SCHEMA_VERSION: Final = "ATIF-v1.8"

ACT: Final = "act"
_TOOL: Final[dict[str, JsonValue]] = {
    "type": "function",
    "function": {
        "name": ACT,
        "description": "Take one action in the environment.",
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string", "description": "As the task lists them."}},
            "required": ["action"],
        },
    },
}
_NOTES: Final = "Metrics are an equal share of the episode's: the writing of its script, the environment's turns and refused attempts included."


class AtifFormat:
    """One document per trajectory, also without a message to train on."""

    name: str = "atif"
    reader: str = "Harbor, Inspect Scout, Phoenix and others that show trajectories"
    advice: Mapping[Masking, str] = MappingProxyType(
        {
            Masking.FLAG: "Each agent step's `extra` has `mistake`, `refines` and `loss`; readers of this format train on all "
            "steps unless told otherwise."
        }
    )

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        del masking
        steps = list(_steps(trajectory))
        mistakes = len(trajectory.mistakes())
        player_steps = sum(step["source"] == "agent" for step in steps)
        origin = trajectory.provenance
        agent: dict[str, JsonValue] = {"name": "refinesynth", "version": origin.package_version}
        if model := origin.models.get("player") or origin.models.get("narrator"):
            agent["model_name"] = model
        agent["tool_definitions"] = [_TOOL]
        metrics: dict[str, JsonValue] = {
            "total_prompt_tokens": origin.usage.input_tokens,
            "total_completion_tokens": origin.usage.output_tokens,
            "total_cached_tokens": origin.usage.cached_tokens,
            "total_steps": len(steps),
            "extra": {"requests": origin.usage.requests},
        }
        if origin.cost_usd is not None:
            metrics["total_cost_usd"] = origin.cost_usd
        data: dict[str, JsonValue] = {
            "schema_version": SCHEMA_VERSION,
            "session_id": trajectory.id,
            "trajectory_id": trajectory.id,
            "agent": agent,
            "steps": list(steps),
            "notes": _NOTES,
            "final_metrics": metrics,
            "extra": trajectory.model_dump(mode="json", include={"persona", "script", "provenance"}),
        }
        yield ExportRecord(data, player_steps - mistakes, mistakes)


def _steps(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield the task and the turns as steps; an answer belongs to the step of its action."""
    mark_by_turn, step_numbers = marks(trajectory.draft()), dict[int, int]()
    yield {"step_id": 1, "source": "user", "message": render_task(trajectory.script)}
    number = 1
    for index, turn in enumerate(trajectory.turns):
        if isinstance(turn, PlayerTurn):
            number = step_numbers[index] = number + 1
            next_turn = trajectory.turns[index + 1] if index + 1 < len(trajectory.turns) else None
            answer = next_turn if isinstance(next_turn, DungeonMasterTurn) else None
            repaired = (
                mark.mistakes if (mark := mark_by_turn.get(index)) is not None and mark.label == "refinement" else ()
            )
            yield _agent_step(number, turn, answer, refines=[step_numbers[earlier] for earlier in repaired])
        elif index == 0 or not isinstance(trajectory.turns[index - 1], PlayerTurn):
            number += 1
            extra = {"dungeon_master": _judgement(turn)}
            yield {"step_id": number, "source": "user", "message": turn.observation, "extra": extra}


def _agent_step(
    number: int, turn: PlayerTurn, answer: DungeonMasterTurn | None, *, refines: list[int]
) -> dict[str, JsonValue]:
    call = f"call-{number}"
    kind = answer.mistake_kind if answer is not None else None
    extra: dict[str, JsonValue] = {
        "mistake": None if kind is None else kind.value,
        "refines": list(refines),
        "loss": kind is None,
        **({} if turn.by is None else {"by": turn.by}),
        **({"parallel": True} if turn.parallel else {}),
    }
    step: dict[str, JsonValue] = {
        "step_id": number,
        "source": "agent",
        "message": turn.thought,
        "tool_calls": [{"tool_call_id": call, "function_name": ACT, "arguments": {"action": turn.action}}],
        "extra": extra,
    }
    if answer is not None:
        step["observation"] = {"results": [{"source_call_id": call, "content": answer.observation}]}
        extra["dungeon_master"] = _judgement(answer)
    return step


def _judgement(turn: DungeonMasterTurn) -> dict[str, JsonValue]:
    return turn.model_dump(mode="json", exclude={"role", "observation"})
