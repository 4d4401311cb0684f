"""From rehearsed episodes to a tuned model to how it acts in worlds that it has not seen, beside the controls."""

import json
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner

import refinesynth as rs
from refinesynth.cli import app
from refinesynth.settings.grounding import Grounding

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from refinesynth.evaluate.evaluating import Evaluation, evaluate
from refinesynth.train import Trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
]


def synthesize(folder: Path, who: str, n: int) -> Path:
    personas = [f"{who} with the number {at}" for at in range(3 * n)]

    async def rehearse() -> int:
        grounding = Grounding(terse=True)
        result = await rs.synthesize(
            personas, n=n, backend="rehearsal", play="grounded", grounding=grounding, output=folder
        )
        return len(result)

    assert anyio.run(rehearse) == n
    return folder


@pytest.mark.long
def test_a_tuned_model_is_evaluated_in_held_out_worlds_beside_the_controls(tmp_path: Path):
    train, held_out = synthesize(tmp_path / "train", "a baker", 6), synthesize(tmp_path / "held-out", "a nurse", 3)
    Trainer(
        model="scratch",
        data=train,
        output=tmp_path / "tuned",
        max_length=2048,
        epochs=1,
        batch_size=2,
        learning_rate=3e-3,
        precision="fp32",
        device="cpu",
        plots=False,
    ).train()
    folders: list[str] = []
    for model in (str(tmp_path / "tuned"), "random", "oracle"):
        folder = tmp_path / "evals" / Path(model).name
        # Few tokens, as it has learned little: what counts is that it is asked, answers, and is scored.
        asked = Evaluation(model=model, tasks=f"worlds:{held_out}", output=folder, steps=10, max_tokens=24)
        (log,) = evaluate(asked, display="none")
        assert log.status == "success"
        folders.append(str(folder))
    result = CliRunner().invoke(app, ["compare", *folders, "-o", str(tmp_path / "compared")])
    assert result.exit_code == 0, result.output
    tuned, chance, oracle = json.loads((tmp_path / "compared" / "compare.json").read_bytes())["evaluations"]
    assert (tuned["model"], chance["model"], oracle["model"]) == ("hf/tuned", "control/random", "control/oracle")
    success = [one["tasks"][0]["measures"]["success"]["mean"] for one in (tuned, chance, oracle)]
    assert success[2] == 1.0
    assert max(success[:2]) < 1.0
    rates = tuned["tasks"][0]["rates"]
    assert rates["format_errors"] + rates["invalid_actions"] > 0
    assert not any(chance["tasks"][0]["rates"][name] for name in ("format_errors", "invalid_actions"))
