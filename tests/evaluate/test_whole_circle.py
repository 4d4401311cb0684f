"""From rehearsed episodes to a tuned model to how it acts in worlds that it has not seen, beside the controls."""

import sys
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from command_line import cli
from inspect_marks import INSPECT

import refinesynth as rs
from refinesynth.settings.grounding import Grounding

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

sys.path.append(str(Path(__file__).resolve().parents[1] / "train"))

import tool_templates
from inspect_ai.log import read_eval_log

from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.settings import Evaluation
from refinesynth.train import Trainer
from refinesynth.train.data.record_forms import from_trajectory
from refinesynth.train.render import Renderer
from refinesynth.trajectory import Trajectory

pytestmark = INSPECT


def synthesize(folder: Path, who: str, n: int, player_form: Literal["react", "tools"] = "react") -> Path:
    personas = [f"{who} with the number {at}" for at in range(3 * n)]

    async def rehearse() -> int:
        grounding = Grounding(terse=True)
        result = await rs.synthesize(
            personas,
            n=n,
            backend="rehearsal",
            play="grounded",
            grounding=grounding,
            player_form=player_form,
            output=folder,
        )
        return len(result)

    assert anyio.run(rehearse) == n
    return folder


@pytest.mark.long
def test_a_model_trained_on_calls_is_evaluated_by_calls(tmp_path: Path):
    """Run, train, evaluate and compare, all by tool calls: what the model is asked is what it was trained on."""
    train, template = synthesize(tmp_path / "train", "a baker", 3, "tools"), tmp_path / "hermes.jinja"
    template.write_text(tool_templates.HERMES, encoding="utf-8")
    Trainer(
        model="scratch",
        data=train,
        form="tools",
        chat_template=str(template),
        output=tmp_path / "tuned",
        max_length=4096,
        held_out=0,
        max_steps=2,
        batch_size=2,
        learning_rate=3e-3,
        precision="fp32",
        device="cpu",
    ).train()
    assert "acts by native tool calls" in (tmp_path / "tuned" / "README.md").read_text(encoding="utf-8")
    tuned, oracle = tmp_path / "evals" / "tuned", tmp_path / "evals" / "oracle"
    tasks: dict[str, Any] = {"tasks": f"mistakes:{train}", "steps": 2, "limit": 1}
    # The form is that of the training; the control is told.
    (log,) = evaluate(Evaluation(model=str(tmp_path / "tuned"), output=tuned, max_tokens=8, **tasks))
    evaluate(Evaluation(model="oracle", output=oracle, form="tools", **tasks))
    assert (log.status, log.eval.model, log.eval.task_args_passed["form"]) == ("success", "local/tuned", "tools")
    (sample,) = read_eval_log(log.location).samples or []
    asked = next(event for event in sample.events if event.event == "model")
    records = map(Trajectory.from_json, (train / "trajectories.jsonl").read_bytes().splitlines())
    played = next(one for one in records if one.id == sample.id)
    tokenizer: Any = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path / "tuned")
    (example,) = Renderer(tokenizer).render(from_trajectory(played, "played", "tools"))
    before = sum(message.role == "assistant" for message in asked.input)
    assert asked.output.usage is not None
    assert asked.output.usage.input_tokens == example.spans[before].start
    result = cli("compare", tuned, oracle)
    assert result.exit_code == 0, result.output
    assert "form is" not in result.output
