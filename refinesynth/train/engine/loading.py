"""Loader of tokenizers and models from the hub or a folder: safetensors only, remote code only on request."""

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, Final, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from refinesynth.errors import InputError
from refinesynth.files.gguf import is_gguf
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.engine import adapters
from refinesynth.train.engine.lm_head import base_model
from refinesynth.train.inputs import TOKENIZER_FILE, pretrained_arguments, resolve_base
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.plan import ModelShape, Precision
from refinesynth.train.render import Renderer
from refinesynth.train.render.template import read_template
from refinesynth.train.tokens import Label, TokenStore

_DTYPES: Final = {"bf16": torch.float32, "fp32": torch.float32, "fp64": torch.float64}
"""Types of the weights. `bf16` trains fp32 weights: bf16 weights would round away most steps of 5e-6."""
_MIN_TOKENS: Final = 8
"""Minimum number of tokens of a tokenizer, without special tokens."""
_SAMPLED_EXAMPLES: Final = 64
"""Number of examples from which the ends of turns are read."""
_MAX_END_TOKENS: Final = 3
_MAX_PROBLEM_LENGTH: Final = 400


def load_tokenizer(config: TrainConfig, conversations: Iterable[Conversation] = ()) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `config`; for a model from scratch, train one on `conversations`. Raises `InputError`."""
    name, revision = config.tokenizer_source
    if name == SCRATCH:
        return make_tokenizer(conversations)
    if config.tokenizer is None and not Path(name, TOKENIZER_FILE).is_file() and not is_gguf(name):
        name, revision, _ = resolve_base(config)  # an adapter folder may have no tokenizer
    source = pretrained_arguments(name, revision)
    with _loading_errors("tokenizer", name):
        tokenizer: PreTrainedTokenizerBase = cast("Any", AutoTokenizer).from_pretrained(
            **source, trust_remote_code=config.trust_remote_code
        )
        # From a folder without tokenizer files, transformers 5 makes a tokenizer of special tokens (Qwen, Gemma, T5).
        if len(tokenizer) - len(tokenizer.all_special_ids) < _MIN_TOKENS:
            raise ValueError("its files are missing, or it knows no words")
    return tokenizer


def make_renderer(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> Renderer:
    """Make the renderer of `config`. Raises `InputError` if the chat template does not fit the tokenizer."""
    return Renderer(
        tokenizer,
        loss_on=config.loss_on,
        template=read_template(config.chat_template),
        on_rewrite=config.on_rewrite,
        chat_template_kwargs=config.chat_template_kwargs,
        thought_as=config.thought_as,
    )


def describe_model(config: TrainConfig, tokenizer: PreTrainedTokenizerBase | None = None) -> ModelShape:
    """The model's sizes, with adapters, computed without loading weights. A model from scratch needs its `tokenizer`.
    Raises `InputError`.
    """
    name, revision, adapter = resolve_base(config)
    source = {} if name == SCRATCH else pretrained_arguments(name, revision)
    with _loading_errors("model", name):
        model_config = _read_model_config(config, source, tokenizer)
        model = _make_meta_model(model_config, config)
    unused = adapters.unused_by_text(model)
    adapters.freeze(model, unused)
    quantized_bytes = adapters.frozen_bytes(model) if config.quantize is not None else None
    if config.lora is not None:
        model = adapters.add_adapters(model, config.lora, adapter, exclude=unused, empty=True)
    dtype = str(model_config.dtype).removeprefix("torch.") if model_config.dtype is not None else None
    shape = model_shape(model, name if adapter else config.model)
    return replace(shape, dtype=dtype, frozen_bytes=quantized_bytes, unused=unused)


def load_model(
    config: TrainConfig,
    precision: Precision,
    *,
    gradient_checkpointing: bool,
    tokenizer: PreTrainedTokenizerBase | None = None,
    unused: Collection[str] = (),
    empty: bool = False,
) -> nn.Module:
    """Load the model of `config`, with adapters if configured, ready for training.

    Parameters under the prefixes `unused` (`ModelShape.unused`) are frozen and get no adapters. `empty`: meta tensors
    replace the weights. Raises `InputError` if the model or its safetensors are missing or incomplete.
    """
    base, revision, adapter = resolve_base(config)
    # Outside `_loading_errors`, which would rewrite the error.
    source: dict[str, Any] = {"local_files_only": True} if base == SCRATCH else pretrained_arguments(base, revision)
    model_class: Any = AutoModelForCausalLM
    model_config: Any = None
    with _loading_errors("model", base):
        # Frozen weights need no fp32: they are not updated, and autocast would convert them in every pass.
        dtype = torch.bfloat16 if config.lora is not None and precision == "bf16" else _DTYPES[precision]
        arguments = source | {"trust_remote_code": config.trust_remote_code}
        if empty or base == SCRATCH:  # no weights are read from files
            model_config = _read_model_config(config, source, tokenizer)
            model_class = type(_make_meta_model(model_config, config))
            weights = {} if empty else _scratch_weights(model_config, config.seed)
            arguments |= {"pretrained_model_name_or_path": None, "config": model_config, "state_dict": weights}
        loaded: tuple[nn.Module, dict[str, Any]] = model_class.from_pretrained(
            **arguments,
            # Without this argument, the auto class looks for adapters on the hub, for 23 seconds when offline.
            adapter_kwargs={"local_files_only": arguments["local_files_only"]},
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **adapters.loading_options(config, precision),
        )
    model, loading_info = loaded
    if model_config is not None:
        cast("Any", model).config.name_or_path = base
    missing = sorted(cast("set[str]", loading_info.get("missing_keys") or set()))
    if missing and not empty:
        raise InputError(
            f"the model {base!r} lacks {len(missing)} of its weights ({', '.join(missing[:3])}), which would be made up at random; "
            f"it is not whole, or not a causal language model"
        )
    if adapters.is_quantized(model):
        model = adapters.prepare_quantized(model)
    adapters.freeze(model, unused)
    if config.lora is not None:
        model = adapters.add_adapters(model, config.lora, adapter, exclude=unused, empty=empty)
        if precision == "bf16":
            adapters.convert_trained_to_fp32(model)
    if gradient_checkpointing:
        checkpoint_activations(model)
    _repair_generation(model)
    return model


def _read_model_config(
    config: TrainConfig, source: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase | None
) -> Any:
    if config.model == SCRATCH and tokenizer is not None:
        return make_config(config, tokenizer)
    return cast("Any", AutoConfig).from_pretrained(**source, trust_remote_code=config.trust_remote_code)


def _make_meta_model(model_config: Any, config: TrainConfig) -> nn.Module:
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(model_config, trust_remote_code=config.trust_remote_code)
    return model


def checkpoint_activations(model: nn.Module) -> None:
    base = cast("Any", base_model(model))
    if not getattr(base, "supports_gradient_checkpointing", False):
        raise InputError(f"{type(base).__name__} cannot do gradient_checkpointing; set it to false")
    # The name changed in transformers 5.2x.
    enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _repair_generation(model: nn.Module) -> None:
    """Repair generation settings that transformers reads but does not write, such as a temperature without sampling."""
    base = cast("Any", base_model(model))
    if getattr(base, "generation_config", None) is None:
        return
    try:
        base.generation_config.validate(strict=True)
    except ValueError:
        base.generation_config.do_sample = True
        try:
            base.generation_config.validate(strict=True)
        except ValueError:
            base.generation_config = GenerationConfig.from_model_config(base.config)


def add_end_tokens(model: nn.Module, store: TokenStore) -> None:
    """Add the last tokens of trained turns to the tokens that stop generation."""
    ends = {
        int(example.input_ids[span.stop - 1])
        for example in islice(store, _SAMPLED_EXAMPLES)
        for span in example.spans
        if example.labels[span.stop - 1] == Label.TRAINED
    }
    generation = getattr(cast("Any", base_model(model)), "generation_config", None)
    # No template has more end-of-turn tokens: the last tokens of turns are then ordinary text.
    if generation is None or len(ends) > _MAX_END_TOKENS:
        return
    configured: Any = generation.eos_token_id
    existing = [] if configured is None else [configured] if isinstance(configured, int) else list(configured)
    if missing := sorted(ends.difference(existing)):
        end_tokens = [*missing, *existing]
        generation.eos_token_id = end_tokens[0] if len(end_tokens) == 1 else end_tokens


def model_shape(model: nn.Module, name: str) -> ModelShape:
    """The sizes of a model, which may be sharded over ranks (ZeRO-3)."""
    sizes = [(int(getattr(p, "ds_numel", p.numel())), p.requires_grad) for p in model.parameters()]
    config = cast("Any", base_model(model)).config.get_text_config()
    hidden = int(getattr(config, "hidden_size", 0))
    # A list has the width of each layer. In a mixture of experts a token takes several, which may have another width.
    widths: list[Any] = [getattr(config, name, None) or 0 for name in ("intermediate_size", "moe_intermediate_size")]
    dense, expert = (width if isinstance(width, int) else int(max(width)) for width in widths)
    dense = dense or 4 * hidden
    routed = int(getattr(config, "num_experts_per_tok", None) or 0) * (expert or dense)
    return ModelShape(
        name=name,
        parameters=sum(size for size, _ in sizes),
        trainable=sum(size for size, trained in sizes if trained),
        layers=int(getattr(config, "num_hidden_layers", 1)),
        hidden=hidden,
        intermediate=max(dense, routed),
        vocabulary=int(config.vocab_size),
        positions=getattr(config, "max_position_embeddings", None),
    )


@contextmanager
def _loading_errors(kind: str, name: str) -> Generator[None]:
    try:
        yield
    except Exception as exc:  # The library raises many kinds of errors on third-party data.
        # The first line of some messages is useless without the second: join the lines.
        problem = shorten(str(exc), _MAX_PROBLEM_LENGTH, placeholder="...") or type(exc).__name__
        if "trust_remote_code" in str(exc):
            problem += " It brings code of its own, which runs only with trust_remote_code."
        if not Path(name).is_dir():
            problem += " There is no folder of this name, so it was taken for one on the Hugging Face Hub."
        raise InputError(f"no {kind} can be loaded from {name!r}: {problem}") from exc


_SCRATCH_TEMPLATE: Final = "chatml"
_END_OF_TEXT: Final = "<|endoftext|>"
_SCRATCH_VOCABULARY: Final = 2000
_MAX_TOKEN_LENGTH: Final = 32
_HIDDEN_SIZE: Final = 128


def make_tokenizer(conversations: Iterable[Conversation]) -> PreTrainedTokenizerBase:
    """Train a byte-level tokenizer with the ChatML template on the data, equal on every rank."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    start, end = "<|im_start|>", "<|im_end|>"
    trainer = trainers.BpeTrainer(
        vocab_size=_SCRATCH_VOCABULARY,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[_END_OF_TEXT, start, end],
        max_token_length=_MAX_TOKEN_LENGTH,
    )
    # A lone surrogate cannot be tokenized; the renderer raises the error with its position.
    turns = (turn.content.encode(errors="replace") for conversation in conversations for turn in conversation.turns)
    bpe.train_from_iterator((text.decode() for text in turns), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, pad_token=_END_OF_TEXT)
    tokenizer.chat_template = cast("Any", read_template(_SCRATCH_TEMPLATE))
    return tokenizer


def make_config(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """Make a Llama configuration with two layers, at most a million parameters and `max_length` positions."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN_SIZE,
        intermediate_size=3 * _HIDDEN_SIZE,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=config.max_length,
        # The default of 0.02 is for widths in the thousands.
        initializer_range=_HIDDEN_SIZE**-0.5,
        bos_token_id=cast("Any", tokenizer).bos_token_id,
        eos_token_id=cast("Any", tokenizer).eos_token_id,
        pad_token_id=cast("Any", tokenizer).pad_token_id,
    )


def _scratch_weights(model_config: LlamaConfig, seed: int) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(model_config).state_dict()
