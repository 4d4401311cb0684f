"""Whole trainings in this process, from text to a saved model that others can load."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from refinesynth.errors import InputError
from refinesynth.train import Trainer
from refinesynth.train.data import read_conversations, split
from refinesynth.train.engine import model_writer

pytestmark = pytest.mark.train

FIELDS: dict[str, Any] = {
    "max_length": 128,
    "batch_size": 4,
    "epochs": 2,
    "held_out": 2,
    "device": "cpu",
    "learning_rate": 1e-3,
}


def records(number: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "id": f"c{k}",
            "messages": [
                {"role": "user", "content": f"Goal: bring mug {k} to the shelf."},
                {"role": "assistant", "content": "Action: go to tabel 1", "loss": False},
                {"role": "user", "content": "Error: invalid command format."},
                {"role": "assistant", "content": "Action: go to table 1", "loss": True},
            ],
        }
        for k in range(number)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "model"
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained(str(folder))
    toys.model(vocab_size=len(tokenizer), tie_word_embeddings=True).save_pretrained(str(folder))
    return folder


def test_from_records_in_memory_to_a_model_that_loads_and_generates(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    trainer = Trainer(model=model, data=iter(records()), output=tmp_path / "out", precision="fp32", **FIELDS)
    assert trainer.config.data == ("in memory: 8 records",)
    assert trainer.plan().sizes.counts.records == 6
    assert trainer.preview()[0].id == "c0"
    result = trainer.train()
    assert (result.steps, result.signal) == (4, None)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "chat_template.jinja", "generation_config.json", "tokenizer.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["dtype"] == "float32"
    assert "refinesynth_segments" not in json.dumps(settings)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    tuned: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = tokenizer.apply_chat_template(records()[0]["messages"][:1], add_generation_prompt=True, return_tensors="pt")
    out = tuned.generate(**ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert ids["input_ids"].shape[1] < out.shape[1] <= ids["input_ids"].shape[1] + 3
    # It stops where the trained turns end, though the untrained model's settings did not say so.
    [end] = tokenizer(tokenizer.eos_token, add_special_tokens=False)["input_ids"]
    stops = tuned.generation_config.eos_token_id
    assert end in (stops if isinstance(stops, list) else [stops])
    assert AutoModelForCausalLM.from_pretrained(model).generation_config.eos_token_id != stops
    before: Any = AutoModelForCausalLM.from_pretrained(model)
    assert not torch.equal(before.lm_head.weight, tuned.lm_head.weight)
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["sizes"]["digest"]


def test_a_finished_training_is_that_of_its_data_alone(model: Path, tmp_path: Path):
    data = tmp_path / "chat.jsonl"
    held_out = {one.id for one in split(read_conversations([records()]), FIELDS["held_out"]).held_out}

    def train(changed: Callable[[str], bool] = lambda _: False, *, in_memory: bool = False, **fields: Any) -> Any:
        found = records()
        for record in found:
            record["messages"][-1]["content"] += "!" * changed(record["id"])
        data.write_text("\n".join(map(json.dumps, found)))
        source, output = (found, "memory") if in_memory else (str(data), "file")
        settings: dict[str, Any] = FIELDS | {"max_steps": 1, "save_every": "never"} | fields
        return Trainer(model=model, data=source, output=tmp_path / output, **settings).train()

    for in_memory in (True, False):
        result = train(in_memory=in_memory)
        # The devices need not suit a training that is finished.
        assert train(in_memory=in_memory, parallel="fsdp") == result
        for changed in (lambda name: name in held_out, lambda name: name not in held_out):
            with pytest.raises(InputError, match="a training on other data is in"):
                train(changed, in_memory=in_memory)
    again = Trainer(model=model, data=str(data), output=tmp_path / "file", **FIELDS, max_steps=1, save_every="never")
    data.write_text("no JSON")
    with pytest.raises(InputError, match="not JSON"):
        again.train()
    data.unlink()
    assert again.train() == result
    (tmp_path / "file" / "plan.json").unlink()
    train(lambda _: True)


def test_held_out_conversations_that_are_left_out_are_counted(model: Path, tmp_path: Path):
    found = records()
    held_out = {one.id for one in split(read_conversations([found]), FIELDS["held_out"]).held_out}
    for record in found:
        record["messages"][-1]["content"] += " and wait" * 200 * (record["id"] in held_out)
    trainer = Trainer(model=model, data=found, output=tmp_path / "out", **FIELDS, max_steps=1, save_every="never")
    plan = trainer.plan()
    assert plan.sizes.held_out is not None
    assert (plan.sizes.held_out.conversations, plan.sizes.held_out.dropped_long, plan.evaluations) == (2, 2, 0)
    assert any("all 2 held-out conversations are left out: 2 longer than" in remark for remark in plan.remarks)
    assert trainer.train().held_out == {}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "of other personas and environments, all left out of the evaluation | 2 |" in card


def test_a_tuned_thinking_model_is_asked_as_it_was_trained_without_a_word(tmp_path: Path):
    base, variables = tmp_path / "base", {"enable_thinking": False, "preserve_thinking": True}
    tokenizer: Any = tiny.tokenizer("qwen3.6")
    tokenizer.save_pretrained(str(base))
    toys.model(vocab_size=len(tokenizer)).save_pretrained(str(base))
    learned = [
        {**each, "messages": [{**one, "loss": one["role"] == "assistant"} for one in each["messages"]]}
        for each in records()
    ]
    fields: dict[str, Any] = FIELDS | {"max_steps": 1, "data": learned, "model": base}
    with pytest.raises(InputError, match=r"item 1: .*Try --set chat_template_kwargs\.enable_thinking=true\|false"):
        Trainer(output=tmp_path / "refused", **fields).plan()
    Trainer(output=tmp_path / "out", chat_template_kwargs=variables, **fields).train()
    tuned: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    messages = [{"role": each["role"], "content": each["content"]} for each in records()[0]["messages"][:3]]
    asked = tuned.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert asked == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **variables)
    assert asked.endswith("<think>\n\n</think>\n\n")
    [checkpoint] = (tmp_path / "out" / "checkpoints").glob("checkpoint-*")
    assert AutoTokenizer.from_pretrained(checkpoint).chat_template == tuned.chat_template
    kept = json.loads((checkpoint / "refinesynth.json").read_text())["identity"]
    assert (kept["chat_template_kwargs"], kept["thought_as"]) == (variables, "content")
    card = (tmp_path / "out" / "README.md").read_text()
    assert '`{"enable_thinking": false, "preserve_thinking": true}` as its defaults' in card


def test_a_tokenizer_that_does_not_keep_its_template_is_not_saved_in_silence(tmp_path: Path):
    class Forgetful(PreTrainedTokenizerFast):
        def save_pretrained(self, *given: Any, **named: Any) -> Any:
            kept, self.chat_template = self.chat_template, "{{ messages[0].content }}"
            super().save_pretrained(*given, **named)
            self.chat_template = kept

    tokenizer = tiny.tokenizer()
    assert model_writer.save_tokenizer(tokenizer, tmp_path / "sound") == []
    tokenizer.__class__ = Forgetful
    (difference,) = model_writer.save_tokenizer(tokenizer, tmp_path / "other")
    assert difference.startswith("the tokenizer (Forgetful) is read back with another chat template")


def test_a_mix_is_told_of_source_by_source(model: Path, tmp_path: Path):
    marked, chat = tmp_path / "runs.jsonl", tmp_path / "chat.jsonl"
    marked.write_text("\n".join(json.dumps(each) for each in records()))
    talks = [
        {"messages": [{"role": "user", "content": f"How is {k}?"}, {"role": "assistant", "content": f"It is {k}."}]}
        for k in range(20)
    ]
    chat.write_text("\n".join(json.dumps(each) for each in talks))
    fields: dict[str, Any] = FIELDS | {"held_out": 0.5, "data": [str(marked), f"{chat}:0.5"]}
    trainer = Trainer(model=model, output=tmp_path / "out", precision="fp32", **fields)
    plan = trainer.plan()
    first, second = plan.sizes.sources
    assert (first.name, first.weight, first.conversations, first.taken) == ("runs.jsonl", 1, 8, 8)
    assert (second.name, second.weight, second.conversations, second.taken) == ("chat.jsonl", 0.5, 20, 10)
    assert plan.sizes.held_out is not None
    assert first.held_out + second.held_out == plan.sizes.held_out.conversations == 9
    for name in ("tokens", "trained_tokens"):
        assert getattr(first, name) + getattr(second, name) == getattr(plan.sizes.counts, name)
    assert (first.unmarked, second.unmarked) == (0, 20)
    (remark,) = [remark for remark in plan.remarks if "no turn of them is marked as a mistake" in remark]
    assert remark.startswith("chat.jsonl: 20 of 20 conversations have no flags")
    assert not [remark for remark in plan.remarks if "no turn of the data is marked" in remark]
    assert plan.sizes.counts.mistake_tokens > 0
    result = trainer.train()
    assert plan == trainer.plan()
    losses = {"loss/runs.jsonl", "loss/chat.jsonl"}
    assert losses < result.held_out.keys()
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert all(losses < line.keys() for line in lines if line["kind"] == "held_out")
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["sizes"]["sources"][1]["taken"] == 10
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| `chat.jsonl` | 0.5 | 20 | 10 | {second.held_out} | {second.tokens} |" in card
    assert f"| `chat.jsonl` | {result.held_out['loss/chat.jsonl']:.4f} |" in card


class Ending(toys.NullEvents):
    """Ends a training as a crash does, behind its first checkpoint."""

    def logged(self, step: int, metrics: Any) -> None:
        if step > 1:
            raise ValueError("crash")


def test_a_training_goes_on_with_its_folders_in_other_words_and_a_refused_one_changes_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(model.parent)
    (tmp_path / "chat.jinja").write_text((model / "chat_template.jinja").read_text())
    output = tmp_path / "out"

    def trainer(folder: Any, data: Any, template: Path, **fields: Any) -> Trainer:
        settings: dict[str, Any] = {**FIELDS, "save_every": 1, "log_every": 1, **fields}
        return Trainer(
            model=folder, data=data, output=output, tokenizer=str(folder), chat_template=str(template), **settings
        )

    with pytest.raises(ValueError, match="crash"):
        trainer("model/", records(), tmp_path / "chat.jinja").train(events=Ending())
    before = {name: (output / name).read_bytes() for name in ("train.yaml", "plan.json")}
    held_out = {one.id for one in split(read_conversations([records()]), FIELDS["held_out"]).held_out}
    other = records()
    for record in other:
        record["messages"][-1]["content"] += "!" * (record["id"] in held_out)
    with pytest.raises(InputError, match="held-out tokens: "):
        trainer("model", other, tmp_path / "chat.jinja", log_every=7).train()
    assert {name: (output / name).read_bytes() for name in before} == before
    result = trainer(model, records(), tmp_path / "." / ".." / tmp_path.name / "chat.jinja").train()
    assert result.resumed_from == 1


def test_metrics_of_a_training_that_failed_before_its_first_checkpoint_do_not_stay(model: Path, tmp_path: Path):
    fields: dict[str, Any] = FIELDS | {"save_every": "never", "held_out": 0}
    with pytest.raises(ValueError, match="crash"):
        Trainer(model=model, data=records(), output=tmp_path, log_every=1, **fields).train(events=Ending())
    Trainer(model=model, data=records(), output=tmp_path, **fields).train()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 4


def test_the_papers_recipe_on_a_base_model_keeps_every_epoch_and_speaks_llama_3(tmp_path: Path):
    base, output = tmp_path / "base", tmp_path / "out"
    tokenizer: Any = tiny.tokenizer("llama3")
    tokenizer.chat_template, tokenizer.eos_token = None, "<|end_of_text|>"
    tokenizer.save_pretrained(str(base))
    toys.model(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id).save_pretrained(str(base))
    trainer = Trainer(
        model=base, data=records(), output=output, recipe="paper-8b", epochs=3, max_length=128, device="cpu"
    )
    plan = trainer.plan()
    assert (plan.sizes.counts.records, plan.sizes.held_out, plan.evaluations, plan.checkpoints) == (8, None, 0, 3)
    assert not [remark for remark in plan.remarks if "held out" in remark]
    result = trainer.train()
    assert (result.steps, result.best_step, dict(result.held_out)) == (3, None, {})
    every = [output / "checkpoints" / f"checkpoint-{step}" for step in (1, 2, 3)]
    assert sorted((output / "checkpoints").iterdir()) == every
    weights = [AutoModelForCausalLM.from_pretrained(each).lm_head.weight for each in [*every, output]]
    assert [torch.equal(each, weights[-1]) for each in weights] == [False, False, True, True]
    tuned: Any = AutoTokenizer.from_pretrained(output)
    text = tuned.apply_chat_template(records()[0]["messages"][:2], tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nGoal: bring mug 0 to the shelf.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nAction: go to tabel 1<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    stops = AutoModelForCausalLM.from_pretrained(output).generation_config.eos_token_id
    assert tuned.convert_tokens_to_ids("<|eot_id|>") in stops


def test_a_template_by_name_that_is_not_made_for_the_model_is_refused(model: Path, tmp_path: Path):
    trainer = Trainer(model=model, data=records(), output=tmp_path / "out", recipe="paper-8b", max_length=128)
    for look in (trainer.plan, trainer.preview):
        with pytest.raises(InputError, match="no end-of-turn token"):
            look()
