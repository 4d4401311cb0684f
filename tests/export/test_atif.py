"""The Agent Trajectory Interchange Format: its laws, stated here, and the models of those who read it."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from export_samples import ORIGIN, a_trajectory, any_trajectories
from hypothesis import given
from samples import dm, player

from refinesynth.chat import to_messages
from refinesynth.export import AtifFormat, Masking, export
from refinesynth.trajectory import DungeonMasterTurn, Persona, PlayerTurn, Provenance, Script, Trajectory


def document(trajectory: Trajectory) -> dict[str, Any]:
    (found,) = export([trajectory], "atif")
    return found


def agent_steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in found["steps"] if step["source"] == "agent"]


def test_the_document_says_who_made_it_from_what_and_for_how_much() -> None:
    found = document(a_trajectory())
    assert (found["session_id"], found["trajectory_id"]) == ("000001-abc", "000001-abc")
    assert found["agent"]["model_name"] == "gpt-4o"
    assert found["final_metrics"] == {
        "total_prompt_tokens": 1_000,
        "total_completion_tokens": 200,
        "total_cached_tokens": 10,
        "total_cost_usd": 0.25,
        "total_steps": 5,
        "extra": {"requests": 9},
    }
    assert Persona.model_validate(found["extra"]["persona"]) == a_trajectory().persona
    assert Script.model_validate(found["extra"]["script"]) == a_trajectory().script
    assert Provenance.model_validate(found["extra"]["provenance"]) == ORIGIN


def test_words_of_the_environment_that_answer_no_action_are_a_step() -> None:
    found = document(a_trajectory(dm("You wake up."), player("look"), dm("A mug."), dm("It rains."), player("look")))
    assert [(step["source"], step["message"]) for step in found["steps"][1:]] == [
        ("user", "You wake up."),
        ("agent", "I try this."),
        ("user", "It rains."),
        ("agent", "I try this."),
    ]
    assert "observation" not in found["steps"][-1]
    assert found["steps"][-1]["extra"] == {"mistake": None, "refines": [], "loss": True}


@given(any_trajectories())
def test_nothing_is_lost_and_no_step_refers_to_what_is_not_there(played: Trajectory) -> None:
    steps = document(played)["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    told: list[PlayerTurn | DungeonMasterTurn] = []
    for step in steps[1:]:
        answer = {"observation": step["message"]}
        if step["source"] == "agent":
            (call,) = step["tool_calls"]
            told.append(PlayerTurn(thought=step["message"], action=call["arguments"]["action"]))
            (result,) = step.get("observation", {"results": [None]})["results"]
            answer = {"observation": result["content"]} if result else {}
            assert result is None or result["source_call_id"] == call["tool_call_id"]
            mistaken = [one["step_id"] for one in steps[: step["step_id"]] if one.get("extra", {}).get("mistake")]
            assert set(step["extra"]["refines"]) <= set(mistaken) - {step["step_id"]}
        if answer:
            told.append(DungeonMasterTurn.model_validate({**step["extra"]["dungeon_master"], **answer}))
    assert tuple(told) == played.turns


@given(any_trajectories())
def test_what_gives_loss_is_what_the_rendering_says(played: Trajectory) -> None:
    roles = [turn.role for turn in played.turns]
    spoken = [message for message in to_messages(played) if message.role == "assistant"]
    if ("Player", "Player") not in pairwise(roles):  # those are one message there
        assert [step["extra"]["loss"] for step in agent_steps(document(played))] == [one.loss for one in spoken]
    (record,) = AtifFormat().records(played, Masking.FLAG)
    assert record.masked == len(played.mistakes())
    assert record.trained + record.masked == roles.count("Player")


@given(played=any_trajectories())
def test_harbors_own_models_take_it(played: Trajectory) -> None:
    models = pytest.importorskip("harbor.models.trajectories", reason="harbor is not installed; it needs Python 3.12")
    found = document(played)
    read = models.Trajectory.model_validate_json(orjson.dumps(found))
    assert read.to_json_dict() == found
