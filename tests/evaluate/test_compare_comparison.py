"""Folders of logs to figures."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from eval_logs import COUNTS, flat, scored, write_log

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.comparison import compare
from refinesynth.evaluate.comparing.comparison_files import write_comparison
from refinesynth.evaluate.comparing.table_values import HELD_OUT, INSTANCES, Comparison


def rows(comparison: Comparison, table: str, **where: str) -> list[dict[str, Any]]:
    """Rows of a table whose labels are as given, column to cell."""
    found = [one for one in comparison.tables if one.name == table]
    named = [dict(zip(one.columns, row, strict=True)) for one in found for row in one.rows]
    return [row for row in named if all(row[column] == label for column, label in where.items())]


def row(comparison: Comparison, table: str, **where: str) -> dict[str, Any]:
    (found,) = rows(comparison, table, **where)
    return found


def said(comparison: Comparison, *words: str) -> bool:
    return any(all(word in warning for word in words) for warning in comparison.warnings)


def write_held_out(folder: Path, won: float, *, of: float = 1.0) -> None:
    for task in ("babyai", "scienceworld", "pddl", "jericho"):
        write_log(folder, task, flat(round(INSTANCES[task] * of * won), round(INSTANCES[task] * of)))


def test_one_epoch(tmp_path: Path) -> None:
    write_log(tmp_path, "babyai", flat(28, 112, progress=0.2))
    found = compare([tmp_path])
    scores = row(found, "scores")
    assert (scores["task"], scores["instances"]) == ("babyai", 112)
    assert scores["success"].mean == pytest.approx(0.25)
    assert scores["progress"].mean == pytest.approx(0.25 + 0.75 * 0.2)
    assert 0.16 < scores["success"].low < 0.19
    assert 0.31 < scores["success"].high < 0.34
    assert [cell.value for cell in list(row(found, "behaviour").values())[2:]] == list(COUNTS.rates.values())
    assert found.warnings == []
    assert found.tables[0].notes == [f"held-out of {tmp_path.name} needs scienceworld, pddl, jericho"]


def test_of_an_unfinished_task_no_score_is_shown(tmp_path: Path) -> None:
    write_log(tmp_path, "worlds", {"a": [*scored(1), None], "b": [None, None], "c": scored(1)}, status="cancelled")
    found = compare([tmp_path])
    assert row(found, "scores")["instances"] == "2 of 3, unfinished"
    assert row(found, "scores")["success"] == "-"
    assert {one.name for one in found.tables} == {"scores"}
    assert said(found, "failed and left out: 3 of 5 episodes", "the environment died")
    assert said(found, "never played: 1 of 6 episodes")
    assert said(found, "not finished (cancelled)")


def test_a_score_that_is_none_counts_as_failed(tmp_path: Path) -> None:
    episodes = {"a": scored(1), "b": [{"success": 2.0, "progress": 1.0}], "c": [{"progress": 1.0}]}
    found = compare([write_log(tmp_path, "worlds", episodes).parent])
    assert row(found, "scores")["instances"] == "1 of 3"
    assert said(found, "failed and left out: 2 of 3 episodes, the first by no score")


@pytest.mark.long
@pytest.mark.parametrize("cause", ["never played", "failed", "second epoch"])
def test_no_p_value_rests_on_the_quick_successes(tmp_path: Path, cause: str) -> None:
    """Twelve quick successes of 112 are no 100 %, and no difference from a whole evaluation."""
    write_held_out(tmp_path / "whole", 0.5)
    write_held_out(tmp_path / "part", 0.5)
    (tmp_path / "part" / next(path.name for path in (tmp_path / "part").iterdir() if "babyai" in path.name)).unlink()
    played = {f"{at:03}": scored(1) for at in range(12)}
    left = {f"{at:03}": [None] if cause == "failed" else [] for at in range(12, 112)}
    if cause == "second epoch":
        played, left = {f"{at:03}": scored(1, 1) if at < 12 else scored(1) for at in range(112)}, {}
    write_log(tmp_path / "part", "babyai", {**played, **left}, status="started")
    found = compare([tmp_path / "whole", tmp_path / "part"], paper=True)
    assert row(found, "scores", task="babyai", evaluation="part")["success"] == "-"
    assert rows(found, "differences", task="babyai") == rows(found, "behaviour", task="babyai", evaluation="part") == []
    assert rows(found, "differences", task="pddl") != []
    assert (
        rows(found, "differences", task="held-out") == rows(found, "scores", task="held-out", evaluation="part") == []
    )
    assert str(row(found, "main", evaluation="part")["babyai"]) == "-"
    assert "part is unfinished: babyai" in found.tables[0].notes


def test_a_measure_that_an_unanswered_question_lacks_is_zero(tmp_path: Path) -> None:
    answered = {"success": 1.0, "progress": 1.0, "em": 1.0, "f1": 0.5}
    write_log(tmp_path, "hotpotqa", {"a": [answered], "b": scored(0)})
    found = {one["measure"]: one["mean"].mean for one in rows(compare([tmp_path]), "further")}
    assert found == {"em": 0.5, "f1": 0.25}


def test_the_newest_finished_log_of_a_task_counts(tmp_path: Path) -> None:
    write_log(tmp_path, "worlds", flat(1, 4), created="2026-11-01T10:00:00+00:00")
    write_log(tmp_path, "worlds", flat(2, 4), created="2026-11-02T10:00:00+00:00")
    write_log(tmp_path, "worlds", flat(3, 4), created="2026-11-03T10:00:00+00:00", status="error")
    found = compare([tmp_path])
    assert row(found, "scores")["success"].mean == 0.5
    assert said(found, "2026-11-02", "other logs of it are left out: 2")


def test_a_log_whose_process_died_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "whole", "worlds", flat(2, 4))
    died = tmp_path / "died" / whole.name
    died.parent.mkdir()
    with ZipFile(whole) as source, ZipFile(died, "w") as target:
        for name in source.namelist():
            if name not in ("header.json", "summaries.json", "reductions.json"):
                target.writestr(name, source.read(name))
    found = compare([died.parent])
    assert row(found, "scores")["success"].mean == 0.5
    assert said(found, "not finished (started)")


@pytest.mark.long
def test_the_held_out_score_weighs_as_the_paper(tmp_path: Path) -> None:
    for task, won in (("babyai", 42), ("scienceworld", 13), ("pddl", 10), ("jericho", 2)):
        write_log(tmp_path, task, flat(won, INSTANCES[task], progress=0.0))
    total = row(compare([tmp_path]), "scores", task="held-out")
    assert total["instances"] == "all"
    assert total["success"].mean == pytest.approx(67 / 282)
    assert row(compare([tmp_path]), "main")["held-out"].success == pytest.approx(67 / 282)


@pytest.mark.parametrize(("of", "pddl", "babyai"), [(0.1, "6 of 60", 11), (1.5, 90, 168)])
def test_other_instances_than_the_papers_make_the_held_out_score_partial(
    tmp_path: Path, of: float, pddl: object, babyai: int
) -> None:
    write_held_out(tmp_path, 0.5, of=of)
    found = compare([tmp_path])
    assert row(found, "scores", task="held-out")["instances"] == "partial"
    assert row(found, "scores", task="pddl")["instances"] == pddl
    notes = [note for table in found.tables for note in table.notes if "does not compare with published" in note]
    assert f"babyai {babyai} of 112" in notes[0]


@pytest.mark.long
def test_over_perturbations_both_standard_deviations_are_given(tmp_path: Path) -> None:
    # The paper's AgentRefine on ALFWorld, of 134: on average 48.5, with 3.73 for the standard deviation.
    wins = {"": 60, "P1": 67, "P2": 69, "P3": 73, "P4": 61, "P5": 60}
    for perturb, won in wins.items():
        write_log(tmp_path, "alfworld", flat(won, 134), perturb=perturb)
    found = compare([tmp_path])
    over = row(found, "perturbations")
    assert (over["task"], over["variants"]) == ("alfworld", "original, P1, P2, P3, P4, P5")
    assert f"{100 * over['success'].mean:.1f}" == "48.5"
    assert f"{100 * over['success'].population:.2f}" == "3.73"
    assert over["success"].sample == pytest.approx(over["success"].population * (6 / 5) ** 0.5)
    assert [one["task"] for one in rows(found, "scores")][:2] == ["alfworld", "alfworld P1"]


def test_differences_are_paired_by_instance(tmp_path: Path) -> None:
    write_log(tmp_path / "base", "worlds", {"a": scored(0), "b": scored(0), "c": scored(1), "only": scored(1)})
    write_log(tmp_path / "first", "worlds", {"c": scored(1), "b": scored(1), "a": scored(1), "x": scored(0)})
    found = compare([tmp_path / "base", tmp_path / "first"])
    difference = row(found, "differences", measure="success")
    assert (difference["evaluation"], difference["pairs"]) == ("first", 3)
    assert difference["difference"].mean == pytest.approx(2 / 3)
    assert (difference["p"].p, difference["p"].test) == (0.5, "McNemar, exact")
    assert said(found, "instances of one alone", "1 in base, 1 in first")


def test_instances_of_one_id_and_other_worlds_are_no_pair(tmp_path: Path) -> None:
    episodes = {name: scored(0) for name in "abc"}
    write_log(tmp_path / "base", "mistakes", episodes, digests={"a": "1", "b": "2"})
    write_log(tmp_path / "first", "mistakes", episodes, digests={"a": "1", "b": "3", "c": "4"})
    found = compare([tmp_path / "base", tmp_path / "first"])
    assert row(found, "differences", measure="success")["pairs"] == 2  # earlier logs have no digests
    assert said(found, "instances of one alone", "1 in base, 1 in first")


@pytest.mark.long
def test_each_is_compared_with_the_first_and_the_held_out_score_too(tmp_path: Path) -> None:
    for name, won in (("base", 0.2), ("first", 0.5), ("second", 0.6)):
        write_held_out(tmp_path / name, won)
    found = compare([tmp_path / name for name in ("base", "first", "second")])
    assert {one["evaluation"] for one in rows(found, "differences")} == {"first", "second"}
    total = row(found, "differences", task="held-out", evaluation="second", measure="success")
    won = {share: sum(round(INSTANCES[task] * share) for task in HELD_OUT) for share in (0.2, 0.6)}
    assert total["pairs"] == 282
    assert total["difference"].mean == pytest.approx((won[0.6] - won[0.2]) / 282)
    assert total["p"].test == "McNemar, exact"
    assert total["p"].p < 1e-20


@pytest.mark.long
def test_other_settings_and_missing_tasks_are_said(tmp_path: Path) -> None:
    write_log(tmp_path / "base", "babyai", flat(20, 112))
    write_log(tmp_path / "base", "alfworld", flat(20, 134))
    write_log(tmp_path / "first", "babyai", flat(20, 112), steps=20)
    write_log(tmp_path / "first", "alfworld", flat(20, 134), perturb="P1")
    found = compare([tmp_path / "base", tmp_path / "first"], paper=True)
    assert said(found, "babyai: steps is 30 in base and 20 in first")
    assert said(found, "alfworld: only in base")
    assert said(found, "alfworld P1: only in first")
    assert said(found, "first: babyai: steps is 20; published scores are with 30")


def test_what_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no evaluation is named"):
        compare([])
    with pytest.raises(InputError, match="is no folder"):
        compare([tmp_path / "none"])
    write_log(tmp_path / "evals" / "first", "worlds", flat(1, 3))
    with pytest.raises(InputError, match=r"holds no logs .* its folders first"):
        compare([tmp_path / "evals"])
    with pytest.raises(InputError, match="given more than once"):
        compare([tmp_path / "evals" / "first"] * 2)
    write_log(tmp_path, "", flat(1, 3))
    with pytest.raises(InputError, match="no benchmark of refinesynth"):
        compare([tmp_path])


@pytest.mark.parametrize("kept", [0, 300, 0.9])
def test_a_broken_log_is_named(tmp_path: Path, kept: float) -> None:
    path = write_log(tmp_path, "worlds", flat(1, 3))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(InputError, match=rf"{path.name}.* cannot be read"):
        compare([tmp_path])


def test_a_task_without_a_scored_episode_is_left_out_and_said(tmp_path: Path) -> None:
    write_log(tmp_path, "worlds", {"a": [None]}, status="error")
    with pytest.raises(InputError, match=r"no scored episode: .*failed and left out: 1 of 1 episodes"):
        compare([tmp_path])
    write_log(tmp_path, "babyai", flat(1, 3))
    found = compare([tmp_path])
    assert [one["task"] for one in rows(found, "scores")] == ["babyai"]
    assert said(found, "worlds: failed and left out: 1 of 1 episodes")


def test_scores_by_level(tmp_path: Path) -> None:
    levels = {f"{at:03}": ("hard", "easy")[at % 2] for at in range(8)}
    write_log(tmp_path, "babyai", flat(4, 8), levels=levels)
    found = rows(compare([tmp_path]), "levels")
    assert [(one["level"], one["instances"], one["success"].mean) for one in found] == [
        ("level easy", 4, 0.5),
        ("level hard", 4, 0.5),
    ]
    assert rows(compare([tmp_path]), "grid") == []


def test_repairs_by_kind_and_position_of_the_mistake(tmp_path: Path) -> None:
    marks = ["kind=place position=early row=1", "kind=place position=late row=loop", "kind=logic position=late row=1"]
    episodes = {f"{at:03}": [{"success": 0.0, "progress": 0.5, "repaired": float(at % 2)}] for at in range(12)}
    write_log(
        tmp_path / "a", "recovery", episodes, argument="runs/x", levels={id_: marks[int(id_) % 3] for id_ in episodes}
    )
    found = compare([tmp_path / "a"])
    assert [one["level"] for one in rows(found, "levels")] == [
        "kind logic",
        "kind place",
        "position early",
        "position late",
        "row 1",
        "row loop",
    ]
    place = row(found, "levels", level="kind place")
    assert (place["instances"], place["repaired"].mean) == (8, 0.5)
    grid = {one["kind"]: [one[each].value for each in ("early", "middle", "late")] for one in rows(found, "grid")}
    assert grid == {"logic": [None, None, 0.5], "place": [0.5, None, 0.5]}
    paths = write_comparison(found, tmp_path / "out")
    picture = next(path for path in paths if path.name == "recovery.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert "Repaired by kind and position" in (tmp_path / "out" / "compare.md").read_text()
