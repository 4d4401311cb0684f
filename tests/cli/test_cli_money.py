"""Budgets, estimates and bills from the command line."""

import re
from functools import partial
from pathlib import Path

import orjson
import pytest
from command_line import cli
from typer.testing import Result

from refinesynth import Backend
from refinesynth.cli import run_display
from refinesynth.rehearsal import Rehearsal

run = partial(cli, "run")


def status(folder: Path, *arguments: str) -> Result:
    return cli("status", folder, *arguments)


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs cost as much as a server would, and nobody is asked."""
    whole = run_display.synthesize

    async def synthesize(**asked: object) -> object:
        backend = Backend(model="gpt-4o", input_price=2.5, output_price=10, max_tokens=4_000)
        return await whole(**{**asked, "backend": backend, "call": Rehearsal()})  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(run_display, "synthesize", synthesize)


def test_a_spent_budget_is_1(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = run("-n", 30, "-o", folder, "--budget", "200ktok")
    assert result.exit_code == 1
    assert "of 200k, about" in result.stderr
    said = re.search(r"(\d+) of 30 trajectories were accepted: the budget of 200,000 tokens is spent", result.stdout)
    assert said is not None
    assert len((folder / "trajectories.jsonl").read_bytes().splitlines()) == int(said[1]) > 0
    assert "stopped: the budget is spent" in status(folder).stdout
    assert run("-n", 6, "-o", folder, "--budget", "20Mtok").exit_code == 0


@pytest.mark.usefixtures("paid")
def test_programs_get_the_report_as_one_object_that_adds_up(tmp_path: Path) -> None:
    result = run("-n", 4, "-o", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    assert told == orjson.loads(status(tmp_path / "run", "--json").stdout)
    spending = told["spending"]
    parts = [*spending["wasted_by_rule"].values(), *(spending[name] for name in ("kept", "fruitless", "unneeded"))]
    for unit in ("requests", "input_tokens", "output_tokens"):
        assert sum(part[unit] for part in parts) == spending["total"][unit]
        assert sum(part[unit] for part in spending["by_role"].values()) == spending["total"][unit]
    assert sum(part["cost_usd"] for part in parts) == pytest.approx(told["cost_usd"])
    assert told["cost_per_accepted"] == pytest.approx(told["cost_usd"] / 4)


def test_a_dry_run_estimates_and_writes_nothing(tmp_path: Path) -> None:
    result = run("-n", 32_000, "-o", tmp_path / "run", "--dry-run", "--sample", 3, "--concurrency", 64)
    assert result.exit_code == 0, result.output
    assert "plays 3 personas for real, and pays for that" in result.stderr
    assert re.search(r"3 personas of the shipped personas played, \d trajector(y|ies) accepted", result.stdout)
    for line in ("for n = 32,000", "personas needed", "tokens out", "cost", "time, 64 in flight"):
        assert line in result.stdout
    assert list(tmp_path.iterdir()) == []
    told = orjson.loads(run("-n", 32_000, "--dry-run", "--sample", 3, "--json").stdout)
    assert told["sample"]["episodes"] == 3
    assert told["personas"]["low"] >= 32_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--budget", "5"), "'5' is no budget; write for example 50usd, 20Mtok"),
        (("--budget", "0usd"), "expected a number above 0"),
        (("--sample", "3"), "--sample is for --dry-run alone"),
        (
            ("--budget", "5usd", "--backend", "hosted_vllm/mine"),
            "that of hosted_vllm/mine is unknown: give input_price and output_price",
        ),
    ],
)
def test_what_cannot_be_paid_is_2_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run("-n", 3, "-o", tmp_path / "run", *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_budget_that_does_not_pay_for_one_episode_is_no_estimate() -> None:
    result = run("-n", 3, "--dry-run", "--budget", "1ktok")
    assert result.exit_code == 1
    assert "did not pay for one whole episode" in result.stderr
