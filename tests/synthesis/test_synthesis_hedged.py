"""A run whose server leaves some requests unanswered for ever ends all the same, with requests that are sent twice."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from refinesynth import Backend, SynthesisResult, synthesize
from refinesynth.cli import app
from refinesynth.cli.funnel import funnel
from refinesynth.client import hedging
from refinesynth.rehearsal import Rehearsal


@dataclass
class Forgetful:
    """The rehearsal; every thirtieth request of the DungeonMaster is never answered, but for its second time."""

    forgets: bool = True
    asked: int = 0
    forgotten: set[str] = field(default_factory=set[str])

    async def __call__(self, **request: Any) -> object:
        what = repr(request)
        self.asked += (ruling := "You are the environment" in what)
        if self.forgets and ruling and self.asked % 30 == 0 and what not in self.forgotten:
            self.forgotten.add(what)
            await anyio.sleep_forever()
        return await Rehearsal()(**request)


async def run(folder: Path, call: Forgetful, *, n: int = 24, hedge: bool = True) -> SynthesisResult:
    prices: dict[str, Any] = {"input_price": 1.0, "output_price": 2.0}
    backend = Backend(model="openai/m", base_url="http://127.0.0.1:9/v1", hedge=hedge, path="litellm", **prices)
    return await synthesize(n=n, seed=7, concurrency=6, backend=backend, call=call, output=folder)


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")]


def few_answers_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "ENOUGH", 10)
    monkeypatch.setattr(hedging, "ONE_IN", 10)
    monkeypatch.setattr(hedging, "_LOOK", 0.01)


async def test_such_a_run_has_the_same_files_and_both_bills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_answers_tell(monkeypatch)
    call, all_is_well = Forgetful(), Forgetful(forgets=False)
    hedged = (await run(tmp_path / "hedged", call)).spending
    plain = (await run(tmp_path / "plain", all_is_well, hedge=False)).spending
    assert files(tmp_path / "hedged") == files(tmp_path / "plain")
    assert call.forgotten
    assert not plain.hedges.requests
    assert hedged.hedges.requests >= hedged.hedges.second_used > 0
    assert hedged.total == plain.total + hedged.hedges.unused

    # What was not used is never recalled, neither by a run that goes on nor by a replay, and stays in the sums.
    again = (await run(tmp_path / "hedged", all_is_well, n=26, hedge=False)).spending
    await run(tmp_path / "plain", all_is_well, n=26, hedge=False)
    assert files(tmp_path / "hedged") == files(tmp_path / "plain")
    assert again.hedges == hedged.hedges
    replayed = await synthesize(n=24, seed=7, backend=f"replay:{tmp_path / 'hedged'}", output=tmp_path / "replayed")
    assert len(replayed) == 24


async def test_what_was_sent_twice_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_answers_tell(monkeypatch)
    result = await run(tmp_path / "runs" / "hedged", Forgetful(), n=8)
    hedges = result.spending.hedges
    said = f"{hedges.requests} request"
    for shown in (told("status", tmp_path / "runs" / "hedged"), rendered(funnel(result))):
        assert said in shown
        assert "sent twice, the second used" in shown
        assert "on requests that were sent twice" in shown
    spending = orjson.loads(told("status", tmp_path / "runs" / "hedged", "--json"))["spending"]
    parts = [
        *spending["wasted_by_rule"].values(),
        *(spending[name] for name in ("kept", "fruitless", "hedged", "unneeded")),
    ]
    for unit in ("requests", "input_tokens", "output_tokens"):
        assert sum(part[unit] for part in parts) == spending["total"][unit]
    assert spending["hedged"]["requests"] >= spending["hedged"]["second_used"] > 0
    # That is no model of its own.
    assert list(spending["by_model"]) == ["openai/m"]
    assert "not used" not in told("list", tmp_path / "runs")


def told(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return result.stdout


def rendered(what: RenderableType) -> str:
    with (console := Console(width=300)).capture() as said:
        console.print(what)
    return said.get()
