"""TRL's GRPO in our worlds, run by its own Python: trl_grpo_job.py ROWS STEPS FOLDER.

ROWS is what `refinesynth export --format rl` wrote. A tiny model is taught the first world's solution by heart, so that
it calls the tools at all, and then trained by GRPO. Writes report.json: each rollout's reward, and the schemas of the
tools.
"""

import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from refinesynth.environments.trl import TextWorld
from refinesynth.trajectory import Script


def main(rows: str, steps: str, folder: str) -> None:
    # Typed as Any: they are not installed where this file is checked.
    trl: Any = import_module("trl")
    datasets: Any = import_module("datasets")
    transformers: Any = import_module("transformers")
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    records = [json.loads(line) for line in Path(rows).read_bytes().splitlines()][:2]
    script = Script.model_validate_json(records[0]["script"])
    weights = {"progress": 0.5, "mistake": 0.05, "length": 0.01}
    factory = partial(TextWorld, steps=6, **weights)
    data = [{key: value for key, value in one.items() if key != "prompt"} for one in records]
    world = TextWorld()
    tools: list[Any] = [method for name, method in _methods(world) if name not in ("reset", "get_reward")]
    played = _by_heart(script, world, records[0])
    tokenizer = _tokenizer(
        transformers, trl, [*played, {"role": "system", "content": json.dumps([str(tool) for tool in tools])}]
    )
    model = _model(transformers, tokenizer)
    _taught(torch, model, tokenizer, played, tools)
    rewards: list[list[float]] = []

    def seen(environments: list[Any], **_: Any) -> list[float]:
        rewards.append([one.get_reward() for one in environments])
        return [0.0] * len(environments)

    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=seen,
        train_dataset=datasets.Dataset.from_list(data),
        environment_factory=factory,
        args=trl.GRPOConfig(
            output_dir=folder,
            max_steps=int(steps),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=384,
            temperature=1.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            log_completions=False,
        ),
    )
    trainer.train()
    schemas = [transformers.utils.get_json_schema(tool) for tool in tools]
    report = {"rewards": rewards, "schemas": schemas, "solution": _solved(script, world)}
    (Path(folder) / "report.json").write_text(json.dumps(report), encoding="utf-8")


def _methods(world: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(world, name)) for name in dir(world) if not name.startswith("_")]


def _by_heart(script: Script, world: Any, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The solution as messages, with calls of the tool."""
    task = world.reset(**record)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for action in _solution(script):
        call = {"type": "function", "function": {"name": "act", "arguments": {"action": action}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": "act", "content": world.act(action)})
    return messages


def _solution(script: Script) -> tuple[str, ...]:
    assert script.rulebook is not None
    return script.rulebook.solution


def _solved(script: Script, world: Any) -> float:
    world.reset(script=script.model_dump_json())
    for action in _solution(script):
        world.act(action)
    return world.get_reward()


def _tokenizer(transformers: Any, trl: Any, messages: list[dict[str, Any]]) -> Any:
    """Of whole words of this play, with the template and the markers of Qwen3."""
    tokenizers: Any = import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([json.dumps(one) for one in messages], trainer)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"])
    templates = Path(trl.__file__).parent / "chat_templates"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=(templates / "qwen3_instruct_2507.jinja").read_text(encoding="utf-8"),
    )


def _model(transformers: Any, tokenizer: Any) -> Any:
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return transformers.Qwen3ForCausalLM(config)


def _taught(torch: Any, model: Any, tokenizer: Any, played: list[dict[str, Any]], tools: list[Any]) -> None:
    ids = tokenizer.apply_chat_template(played, tools=tools, return_tensors="pt", return_dict=True)["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
