"""Presets: table of short names for backends."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel

from refinesynth.backends.backend import REHEARSAL, Backend


class Preset(BaseModel, frozen=True, extra="forbid"):
    """Short name for a backend."""

    backend: Backend
    note: str
    """Description in one or two sentences."""


_SCRIPT_TOKENS = 8000
"""Maximum tokens of a completion, for providers with a default of about 4,096: a script or a narrated trajectory may be
longer. All these models can give at least 64,000 tokens (litellm's price map)."""


def _preset(name: str, note: str, model: str, **settings: object) -> Preset:
    return Preset(backend=Backend.model_validate({"name": name, "model": model, **settings}), note=note)


_PRESETS = (
    _preset(REHEARSAL, "Embedded: small generated worlds, no key, no network, the same every time.", REHEARSAL),
    _preset("gpt-4o", "OpenAI.", "gpt-4o"),
    _preset("gpt-4o-mini", "OpenAI, cheap.", "gpt-4o-mini"),
    _preset(
        "deepseek",
        # Formerly sold as deepseek-chat: the current model with thinking off. Thinking models reject forced tool
        # calls and charge for text that is not used here.
        "DeepSeek's current chat model, without thinking. DeepSeek-V2.5, the paper's second model, has retired.",
        "deepseek/deepseek-flash",
        max_tokens=_SCRIPT_TOKENS,
        extra={"thinking": {"type": "disabled"}},
    ),
    _preset(
        "deepseek-pro",
        "DeepSeek's large model, without thinking.",
        "deepseek/deepseek-v4-pro",
        max_tokens=_SCRIPT_TOKENS,
        extra={"thinking": {"type": "disabled"}},
    ),
    _preset("claude", "Anthropic's middle model.", "anthropic/claude-sonnet-5-5", max_tokens=_SCRIPT_TOKENS),
    _preset("gemini", "Google's fast model.", "gemini/gemini-3.8-flash"),
    _preset(
        "qwen",
        "Alibaba's middle model, without thinking.",
        "dashscope/qwen3.7-plus",
        max_tokens=_SCRIPT_TOKENS,
        extra={"enable_thinking": False},
    ),
    _preset(
        "ollama",
        "Ollama on this machine, after `ollama pull qwen3:8b`; another model is ollama_chat/NAME.",
        "ollama_chat/qwen3:8b",
    ),
    _preset(
        "vllm",
        "vLLM on port 8000 of this machine, serving Qwen/Qwen3-8B; another model is hosted_vllm/NAME.",
        "hosted_vllm/Qwen/Qwen3-8B",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.backend.name: preset for preset in _PRESETS})
"""Name to preset; other litellm model strings are names of backends too."""
