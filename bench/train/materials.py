"""The conversations, in each trainer's format, and the model that they train."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

import refinesynth as rs
from refinesynth.chat import to_messages
from refinesynth.export import Masking, write_export
from refinesynth.export.chat_shapes import conversations, sharegpt
from refinesynth.train.data import read_conversations
from refinesynth.train.render import Renderer

_PLAIN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_MARKED = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' and (message.loss is not defined or message.loss) %}"
    "<|im_start|>assistant\n{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}{{ '\n' }}"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Scale:
    """Sizes of the model and of what goes through it at once."""

    conversations: int
    batch: int
    """Conversations of an optimizer step."""
    rows: int
    """Of these, how many are padded to one length and go through the model together."""
    max_length: int
    """Tokens of the longest row."""
    width: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    """Chosen so that the head is a fifth of the weights that are computed with, as in models of a billion
    parameters."""


CPU = Scale(
    conversations=48,
    batch=8,
    rows=4,
    max_length=2_048,
    width=256,
    layers=4,
    heads=4,
    kv_heads=4,
    intermediate=1_024,
    vocabulary=4_096,
)
GPU = Scale(
    conversations=512,
    batch=64,
    rows=8,
    max_length=8_192,
    width=2_048,
    layers=16,
    heads=32,
    kv_heads=8,
    intermediate=8_192,
    vocabulary=128_256,
)
"""The shape of Llama 3.2 1B, with a head of its own."""


@dataclass(frozen=True)
class Materials:
    """Files, and what is in them."""

    model: Path
    template: Path
    ours: Path
    trl: Path
    split: Path
    """For LLaMA-Factory: a record per correct turn, of an eighth of the conversations: it takes several times as
    long."""
    split_tokens: int
    """Of those conversations, each counted once."""
    unmasked: Path
    """For LLaMA-Factory: a record per conversation, which says nothing of mistakes."""
    conversations: int
    tokens: int
    trained: int
    squares: int
    """Sum over conversations of their squared lengths."""
    parameters: int


def make(folder: Path, scale: Scale, *, conversations: int) -> Materials:
    """Rehearse, export, and make a model of random weights."""
    run = asyncio.run(_rehearsed(conversations))
    ours = folder / "trajectories.jsonl"
    ours.write_bytes(b"".join(one.to_json() + b"\n" for one in run))
    tokenizer = _tokenizer(run)
    model = folder / "model"
    parameters = _save_model(model, scale, tokenizer)
    (folder / "marked.jinja").write_text(_MARKED, encoding="utf-8")
    rendered = [one for conversation in read_conversations([ours]) for one in Renderer(tokenizer).render(conversation)]
    # Exports end with the last assistant turn.
    lengths = [one.spans[-1].stop for one in rendered]
    eighth = max(1, len(run) // 8)
    return Materials(
        model=model,
        template=folder / "marked.jinja",
        ours=ours,
        trl=write_export(run, folder / "flagged.jsonl", "trl", masking="flag").path,
        split=write_export(run[:eighth], folder / "split.jsonl", "sharegpt", masking="split").path,
        split_tokens=sum(lengths[:eighth]),
        unmasked=_unmasked(folder / "unmasked.jsonl", run),
        conversations=len(rendered),
        tokens=sum(lengths),
        trained=sum(one.trained for one in rendered),
        squares=sum(length**2 for length in lengths),
        parameters=parameters,
    )


async def _rehearsed(count: int) -> Sequence[rs.Trajectory]:
    personas = [f"somebody with the number {at}" for at in range(2 * count)]
    return list(await rs.synthesize(personas, n=count, backend="rehearsal"))


def _unmasked(path: Path, run: Sequence[rs.Trajectory]) -> Path:
    records = [
        sharegpt(one.id, messages, ()) for one in run for messages in conversations(to_messages(one), Masking.FLAG)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    entry = {
        "file_name": path.name,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations"},
        "tags": {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"},
    }
    info = path.with_name("dataset_info.json")
    known: dict[str, Any] = json.loads(info.read_text()) if info.exists() else {}
    info.write_text(json.dumps(known | {path.stem: entry}), encoding="utf-8")
    return path


def _tokenizer(run: Sequence[rs.Trajectory]) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        (message.content for one in run for message in to_messages(one)),
        trainers.BpeTrainer(
            vocab_size=2_000,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = _PLAIN
    return fast


def _save_model(folder: Path, scale: Scale, tokenizer: Any) -> int:
    """Its number of parameters."""
    set_seed(0)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=scale.vocabulary,
            hidden_size=scale.width,
            intermediate_size=scale.intermediate,
            num_hidden_layers=scale.layers,
            num_attention_heads=scale.heads,
            num_key_value_heads=scale.kv_heads,
            max_position_embeddings=2 * scale.max_length,
            bos_token_id=None,
            eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
            pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(weights.numel() for weights in model.parameters())
