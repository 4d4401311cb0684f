"""A student and its teacher on the command line: what is asked for, refused, counted and gone on with."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import cli, unwrapped
from typer.testing import Result

from refinesynth import rules
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.errors import InputError
from refinesynth.rules.repairs import repairs
from refinesynth.run import RunFolder
from refinesynth.synthesis import synthesize

TAUGHT = "--play grounded --backend rehearsal --backend player=rehearsal:skill=0.6 --backend repairer=planner --mistakes natural"


def invoke(command: str, *more: object) -> Result:
    return cli(*command.split(), *more)


def test_a_run_with_a_planner_is_gone_on_with_and_counted(tmp_path: Path) -> None:
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    for n in (1, 4):
        assert invoke(f"run -n {n} {TAUGHT}", "-o", parts).exit_code == ExitCode.OK
    assert invoke(f"run -n 4 {TAUGHT}", "-o", whole).exit_code == ExitCode.OK
    names = "trajectories.jsonl", "rejected.jsonl"
    assert [(parts / name).read_bytes() for name in names] == [(whole / name).read_bytes() for name in names]
    taught = list(RunFolder.open(whole).trajectories())
    assert all(rules.verify(one, rules.grounded()).accepted for one in taught)
    assert {one.provenance.models["repairer"] for one in taught} == {"planner"}

    counts = orjson.loads(invoke("status --json", whole).stdout)["variety"]
    found = [repair for one in taught for repair in repairs(one.draft()) if repair.answer is not None]
    assert sum(one["mistakes"] for one in counts["repaired"].values()) == len(found) > 0
    total = sum(one["mistakes"] * one["turns"] for one in counts["repaired"].values())
    assert total == pytest.approx(sum((repair.answer or 0) - repair.mistake.turn for repair in found) / 2)
    assert " turns" in invoke("status", whole).stdout.partition("repaired")[2]
    assert "repair " in invoke("show", whole).stdout

    other = invoke(f"run -n 5 {TAUGHT.replace('--backend repairer=planner', '')}", "-o", whole)
    assert other.exit_code == ExitCode.WRONG_INPUT
    assert 'repairer: "planner" -> null' in other.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--backend rehearsal --backend repairer=planner", "the repairer is 'planner', and play is 'live'"),
        ("--play narrated --backend default=rehearsal --backend repairer=rehearsal", "nobody plays turn by turn"),
        ("--repair-turns 0", "--repair-turns is '0'; expected 'until', or a whole number, 1 or more"),
        ("--repair-turns 2", "repair_turns is 2, and nobody repairs; give a repairer, or leave out repair_turns"),
        (
            "--backend player=rehearsal --backend default=rehearsal --set repairer.model=gpt-4o",
            "--set repairer.model is given, and no backend for the repairer",
        ),
        (
            "--play grounded --backend rehearsal --backend repairer=planner --backend repairer=rehearsal",
            "the planner takes no turns with others, name it alone or leave it out",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: str, says: str) -> None:
    done = invoke(f"run -n 1 {options}", "-o", tmp_path / "run")
    assert done.exit_code == ExitCode.WRONG_INPUT
    assert says in unwrapped(done.stderr)
    assert not (tmp_path / "run").exists()


def test_the_note_to_the_repairer_can_be_looked_at() -> None:
    assert "stood in the way" in invoke("prompts show repairer --play grounded --json").stdout


@pytest.mark.parametrize("role", ["repairer", "player"])
def test_several_take_turns_in_a_role(tmp_path: Path, role: str) -> None:
    several = f"--backend {role}=rehearsal --backend {role}=rehearsal:skill=0.6"
    done = invoke(f"run -n 1 --play grounded --backend rehearsal {several} --mistakes natural", "-o", tmp_path / "run")
    assert done.exit_code == ExitCode.OK
    assert f"{role}=rehearsal and rehearsal:skill=0.6" in unwrapped(done.stderr)


@pytest.mark.parametrize(("given", "made"), [("planner", "model"), ("model", "planner")])
async def test_a_repairer_that_its_backend_contradicts_is_refused(tmp_path: Path, given: Any, made: Any) -> None:
    backend = {"default": "rehearsal", "repairer": "planner" if made == "planner" else "rehearsal"}
    with pytest.raises(InputError, match=f"repairer is '{given}', and the backend of that role makes it '{made}'"):
        await synthesize(None, n=1, play="grounded", repairer=given, backend=backend, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    agreed = await synthesize(None, n=1, play="grounded", repairer=made, backend=backend, output=tmp_path / "run")
    assert len(agreed) == 1
