"""The model card: complete, true, and safe whatever names it has to show."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from train_values import LLAMA_8B, a_config, a_plan, a_result, counts, gpus, sizes

from refinesynth.train.training_folder import render_card, versions


def card(*, result: dict[str, Any] | None = None, held_out: bool = True, **fields: Any) -> str:
    config = a_config(**fields)
    model = replace(LLAMA_8B, name=config.model)
    plan = a_plan(config, of=sizes(counts(1234), counts(20) if held_out else None), model=model)
    return render_card(config, plan, a_result(Path(config.output), **(result or {})))


def header(text: str) -> dict[str, Any]:
    return yaml.safe_load(text.split("---\n")[1])


def test_it_names_data_recipe_counts_loss_and_results() -> None:
    passed = {"neftune_noise_alpha": 5, "report_to": "wandb"}
    text = card(recipe="paper-8b", data=["runs/first", "exports/second.jsonl"], trainer=passed)
    for expected in (
        "- `runs/first`\n- `exports/second.jsonl`",
        "| conversations | 1,234 |",
        "| of these trained on | 493,600 |",
        "kept out of the loss | 123,400 |",
        "held out, of other personas and environments | 20 |",
        "d" * 64,
        "Recipe: `paper-8b`.",
        "`loss_on` is `refinement`",
        "160 of 160 optimizer steps, 10.00 epochs; training loss 0.5123",
        "step 128, with the lowest held-out loss",
        "| refinements | 0.7000 |",
        "| mistakes (not trained on) | 2.5000 |",
        "No licence is set here",
        "Persona Hub's are CC-BY-NC-SA-4.0",
        "arXiv:2501.01702",
        "- torch: `",
    ):
        assert expected in text
    assert "license" not in header(text)
    assert "wandb" not in text


def test_the_header_is_what_the_hub_reads() -> None:
    assert header(card()) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": "m/base",
        "tags": ["refinesynth", "refinement-tuning", "agent"],
    }
    assert header(card(lora=True))["library_name"] == "peft"


def test_a_folder_is_no_base_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m" / "base").mkdir(parents=True)
    assert "base_model" not in header(card())


def test_what_is_not_so_is_not_said() -> None:
    text = card(held_out=False, result={"best_step": None, "held_out": {}})
    assert "held" not in text.replace("held-out loss", "")
    assert "step 128" not in text
    assert "Recipe: none" in text
    assert "taken out of the data" in card(without_refinement=True)
    assert "rank 32, alpha 64.0, on `all-linear`" in card(lora=True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss_on": "repairs"}, "the model learns from the repair, never from the mistake."),
        ({"loss_on": "all_turns"}, "the model learns from all turns, also from mistakes."),
        ({"loss_on": "no_refinement_turns"}, "the model learns neither from mistakes nor from their repair."),
        ({"loss_on": "all_turns", "without_refinement": True}, "the model learns from correct turns alone."),
    ],
)
def test_it_says_what_is_learned(fields: dict[str, Any], said: str) -> None:
    text = card(**fields)
    assert said in text
    assert ("never from the mistake" in text) == (fields["loss_on"] == "repairs")
    assert ("| mistakes (not trained on) | 2.5000 |" in text) == (fields["loss_on"] != "all_turns")
    assert ("| mistakes | 2.5000 |" in text) == (fields["loss_on"] == "all_turns")


def test_it_says_how_prompts_are_made() -> None:
    plain = card().partition("## Data")[0]
    assert "defaults" not in plain
    assert "thoughts" not in plain
    text = " ".join(card(chat_template_kwargs={"a": "`x`"}, thought_as="reasoning").partition("## Data")[0].split())
    assert 'and has ``{"a": "`x`"}`` as its defaults' in text
    assert "its messages begin with `Action:`. Give earlier thoughts" in text


def test_no_absolute_path_is_told() -> None:
    text = card(data=["/home/ada.l/secret/run-1"], model="/home/ada.l/base", output="/home/ada.l/models/tuned")
    assert "ada.l" not in text
    assert "- `run-1`" in text
    assert "# `tuned`" in text


HOSTILE = "x`](http://evil)\n---\nlicense: mit\n# heading <script> | cell \u202e {{ facts }} {% raw %}"


def test_hostile_names_change_neither_header_nor_headings() -> None:
    harmless, hostile = card(), card(data=[HOSTILE], model=HOSTILE, output="models/" + HOSTILE.replace("/", ""))
    assert header(hostile)["tags"] == header(harmless)["tags"]
    assert "license" not in header(hostile)
    headings = [[line for line in text.splitlines() if line.startswith("## ")] for text in (harmless, hostile)]
    assert headings[0] == headings[1]
    assert "\u202e" not in hostile


def test_versions_name_packages_and_devices_and_no_machine() -> None:
    found = versions(gpus(8))
    assert {"refinesynth", "torch", "transformers", "python", "device", "ranks"} <= set(found)
    assert found["device"] == "NVIDIA H100"
    assert found["ranks"] == 8
