"""Grounded worlds as tasks of reinforcement learning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from refinesynth.chat import render_tool_turns, render_tools, render_turns
from refinesynth.environments.starts import beginning, share_of_mistakes
from refinesynth.export.chat_shapes import ExportRecord, Masking, prompt
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Difficulty, Trajectory
from refinesynth.world import check_solvability

Band = Literal["easy", "medium", "hard"]

EASY, MEDIUM = 4, 8
"""Most actions of the shortest solution for a band. Fixed, so that a world keeps its band when a run goes on."""


UNSOLVED = "worlds of which no solution was found"


def band_of(difficulty: Difficulty) -> Band:
    """Band of a curriculum; one harder for a world whose goal one action can make unreachable."""
    bands: tuple[Band, ...] = ("easy", "medium", "hard")
    at = (difficulty.steps > EASY) + (difficulty.steps > MEDIUM) + bool(difficulty.losable)
    return bands[min(at, 2)]


@dataclass(frozen=True)
class WorldFormat:
    """One record for each grounded script, or for each mistake to begin behind. An instance is used for one file."""

    form: Literal["react", "tools"] = "react"
    start: str = "clean"
    """Beginning of the plays: `clean`, `mistakes` or `mixed:SHARE`, see `environments.starts`."""
    name: str = "rl"
    reader: str = "reinforcement learning: TRL, verifiers, and others that ask a prompt and reward an answer"
    advice: Mapping[Masking, str] = field(
        default_factory=lambda: {
            Masking.WORLD: "`script` is the world as JSON text: `refinesynth.environments` plays and rewards it, docs/environments.md says how in TRL and verifiers."
        }
    )
    _seen: set[str] = field(default_factory=set[str], repr=False)

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        del masking
        script = trajectory.script
        share = share_of_mistakes(self.start)
        turns = beginning(trajectory, share)
        if script.rulebook is None or (not turns and (share == 1 or script.digest in self._seen)):
            return
        if not turns:
            self._seen.add(script.digest)
        difficulty = trajectory.provenance.difficulty or check_solvability(script).difficulty
        if difficulty is None:
            yield ExportRecord.none(UNSOLVED)
            return
        told = render_turns(script, turns) if self.form == "react" else render_tool_turns(script, turns)
        data: dict[str, JsonValue] = {
            "id": trajectory.id,
            "prompt": [*prompt(told)],
            "script": write_json(script.model_dump(mode="json")).decode(),
            "band": band_of(difficulty),
            "difficulty": difficulty.model_dump(mode="json"),
        }
        if share:
            data["before"] = write_json([turn.model_dump(mode="json") for turn in turns]).decode()
        if self.form == "tools":
            data["tools"] = write_json(render_tools(script)).decode()
        yield ExportRecord(data, 0, 0)
