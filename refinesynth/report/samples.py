"""Records of a run for its report: a random sample, each as plain JSON for the page."""

import random
from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import JsonValue, ValidationError

from refinesynth.chat.react import label_of
from refinesynth.errors import RunFolderError
from refinesynth.outcome import Refused
from refinesynth.report.html_page import shortened
from refinesynth.rules import rejects
from refinesynth.rules.repairs import Mark, Mistake, Refinement, marks
from refinesynth.run import RunFolder
from refinesynth.run.jsonl import read_lines
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script, Trajectory, explain, flagged_turns


def trajectories(folder: RunFolder, most: int) -> list[Trajectory]:
    """Return a sample of the accepted trajectories; raises RunFolderError at a line that is none."""
    counted = folder.counted()
    return _sampled(
        folder.trajectories_file, counted and counted.trajectories_end, Trajectory, most, folder.config.seed
    )


def refused(folder: RunFolder, most: int) -> list[Refused]:
    """Return a sample of the refused scripts and drafts; raises RunFolderError at a line that is none."""
    counted = folder.counted()
    return _sampled(folder.rejected_file, counted and counted.rejected_end, Refused, most, folder.config.seed)


_Record = TypeVar("_Record", Trajectory, Refused)


def _sampled(path: Path, end: int | None, kind: type[_Record], most: int, seed: int) -> list[_Record]:
    # Algorithm R (Vitter, 1985): the lines of a sample are kept, and only they are parsed.
    draw, kept = random.Random(seed), list[tuple[int, bytes]]()
    for number, line in enumerate(read_lines(path, end=end), start=1):
        if len(kept) < most:
            kept.append((number, line))
        elif (place := draw.randrange(number)) < most:
            kept[place] = (number, line)
    records: list[_Record] = []
    for number, line in sorted(kept):
        try:
            records.append(kind.model_validate(orjson.loads(line)))
        except (orjson.JSONDecodeError, ValidationError) as error:
            problem = explain(error) if isinstance(error, ValidationError) else error
            raise RunFolderError(f"line {number} of {str(path)!r} is not a {kind.__name__}: {problem}") from error
    return records


def of_trajectory(found: Trajectory) -> dict[str, JsonValue]:
    """Return a trajectory as the page shows it."""
    return {
        "id": shortened(found.id),
        "by": shortened(", ".join(f"{role}: {model}" for role, model in found.provenance.models.items())),
        **_script(found.script, found.persona.text),
        "turns": _turns(found.draft()),
    }


def of_refused(found: Refused) -> dict[str, JsonValue]:
    """Return a refused script or draft as the page shows it."""
    evidence = found.evidence()
    return {
        "id": shortened(found.episode),
        "by": f"{found.stage}, attempt {found.attempt}",
        **(
            {"persona": shortened(found.persona.text)}
            if evidence is None
            else _script(evidence.script, found.persona.text)
        ),
        "turns": [] if evidence is None else _turns(evidence),
        "why": [shortened(f"{one.rule} ({one.code}): {one.message}") for one in found.violations if rejects(one)]
        or [shortened(found.text or "unreadable")],
    }


def _script(script: Script, persona: str) -> dict[str, JsonValue]:
    return {
        "persona": shortened(persona),
        "goal": shortened(script.goal),
        "place": shortened(script.introduction.strip()),
        "actions": [shortened(action.name) for action in script.actions],
    }


def _turns(draft: Draft) -> list[JsonValue]:
    marked, mistakes = marks(draft), set(flagged_turns(draft.turns))
    turns: list[JsonValue] = []
    for at, turn in enumerate(draft.turns):
        if isinstance(turn, PlayerTurn):
            label = label_of(turn, mistake=at in mistakes)
            note = _note(marked.get(at))
            turns.append(
                {"who": label, "thought": shortened(turn.thought), "action": shortened(turn.action), "note": note}
            )
        elif isinstance(turn, DungeonMasterTurn):
            turns.append({"who": "dm", "text": shortened(turn.observation)})
        else:
            turns.append({"who": "malformed", "text": shortened(str(turn.raw)), "note": shortened(turn.problem)})
    return turns


def _note(mark: Mark | None) -> str:
    if isinstance(mark, Mistake):
        return f"mistake ({mark.kind.value})"
    if isinstance(mark, Refinement):
        return f"repairs turn {', '.join(str(at + 1) for at in mark.of)}"
    return ""
