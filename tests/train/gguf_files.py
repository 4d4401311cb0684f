"""GGUF files of toy models, as llama.cpp's converter and quantizer write them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny
import torch
from gguf import GGMLQuantizationType as Kind

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.down_proj": "ffn_down",
}
_CONTROL, _NORMAL = 3, 1


def gguf_name(name: str) -> str:
    """The name in a GGUF file of a weight of transformers."""
    name = name.replace("model.layers.", "blk.")
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name


def permuted(name: str, weight: Any, heads: int, kv_heads: int) -> Any:
    """Rows of queries and keys of Llama in llama.cpp's order: a head's halves are interleaved."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    count = heads if "q_proj" in name else kv_heads
    return weight.reshape(count, 2, weight.shape[0] // count // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    model: Any,
    *,
    architecture: str = "llama",
    head: Kind | None = None,
    extra: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    without: str = "none",
) -> dict[str, Any]:
    """Write a toy Llama with a tokenizer; matrices in Q8_0, embeddings in Q4_0. Return the weights that the file holds.

    `head`: type of a head beside the embeddings, also where they are tied; `extra`: tensors besides; `fields`: of the
    metadata; `without`: end of the names of tensors that are left out.
    """
    config, tokenizer = model.config, tiny.tokenizer(vocabulary=400)
    writer: Any = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("toy")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if architecture == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0)))
    writer.add_vocab_size(config.vocab_size)
    for name, value in (fields or {}).items():
        (writer.add_uint16 if isinstance(value, int) else writer.add_string)(name, value)
    _write_tokenizer(writer, tokenizer, config.vocab_size)
    held: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        as_written = permuted(name, weight.numpy(), config.num_attention_heads, config.num_key_value_heads)
        kind = Kind.F32 if weight.ndim == 1 else Kind.Q4_0 if "embed_tokens" in name else head or Kind.Q8_0
        if name.endswith(without) or (name == "lm_head.weight" and config.tie_word_embeddings and head is None):
            continue
        quantized = gguf.quantize(as_written, kind)
        writer.add_tensor(gguf_name(name), quantized, raw_dtype=kind)
        back = torch.tensor(gguf.dequantize(quantized, kind))
        held[name] = unpermuted(name, back, config)
    for name, value in (extra or {}).items():
        writer.add_tensor(name, np.asarray(value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def unpermuted(name: str, weight: Any, config: Any) -> Any:
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    count = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    return weight.reshape(count, weight.shape[0] // count // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _write_tokenizer(writer: Any, tokenizer: Any, size: int) -> None:
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    assert len(vocabulary) == size, len(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary)
    special = set(tokenizer.all_special_tokens) | {"<|im_start|>", "<|endoftext|>"}
    writer.add_token_types([_CONTROL if token in special else _NORMAL for token in vocabulary])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    writer.add_chat_template(tokenizer.chat_template)
