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

from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.settings import Evaluation
from refinesynth.train import Trainer

pytestmark = [
    pytest.mark.process,
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
    ).train()
    folders: list[str] = []
    for model in (str(tmp_path / "tuned"), "random", "oracle"):
        folder = tmp_path / "evals" / Path(model).name
        # Few tokens, as it has learned little: what counts is that it is asked, answers, and is scored.
        batch = {"batch_size": 3} if model.startswith(str(tmp_path)) else {}
        asked = Evaluation(
            model=model, tasks=f"worlds:{held_out}", output=folder, steps=10, max_tokens=24, settings=batch
        )
        (log,) = evaluate(asked)
        assert log.status == "success"
        assert log.eval.model_generate_config.max_connections == batch.get("batch_size")
        folders.append(str(folder))
    result = CliRunner().invoke(app, ["compare", *folders, "-o", str(tmp_path / "compared")])
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "compared" / "compare.json").read_bytes())
    assert list(facts["models"].values()) == ["hf/tuned", "control/random", "control/oracle"]
    success = [row["success"]["mean"] for row in facts["tables"]["scores"]]
    assert success[2] == 1.0
    assert max(success[:2]) < 1.0
    failed = [row["format errors"]["value"] + row["invalid actions"]["value"] for row in facts["tables"]["behaviour"]]
    assert failed[0] > 0
    assert failed[1:] == [0, 0]
