"""What each provider's servers understand, as far as it was compared with what litellm sends them
(tests/client/test_direct_requests.py).
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from refinesynth.client.http import shaping
from refinesynth.client.http.listed import says
from refinesynth.client.http.openai_models import shape_openai, taken_by_openai
from refinesynth.client.http.reply import Reply

Takes: TypeAlias = Callable[[str], frozenset[str]]
"""The OpenAI parameters that a model's requests may carry."""

COMMON = frozenset(
    {
        "frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty", "response_format", "seed",
        "stop", "temperature", "tool_choice", "tools", "top_p",
    }
)  # fmt: skip
_MODEST = COMMON - {"frequency_penalty", "logit_bias", "presence_penalty"}
_REASONS = frozenset({"reasoning_effort"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one provider's servers are asked."""

    base_url: str | None
    """The provider's own server; None where there is none."""
    base_url_env: tuple[str, ...] = ()
    """Environment variables that name another one, the first that is set."""
    key_env: tuple[str, ...] = ()
    """Environment variables that may hold a key for a server which mostly needs none."""
    takes: Takes = lambda _model: COMMON
    shape: Callable[[dict[str, Any], str], None] = shaping.as_it_is
    """Changes a body whose parameters are all taken; gets the model too."""
    read: Callable[[Reply], Reply] = shaping.read_as_it_is
    ending: str = ""
    """With what its address ends, also where it is given without."""
    prefix: str = ""
    """What litellm writes before the model's name in an answer."""
    headers_env: tuple[tuple[str, str], ...] = ()
    """Headers, each with the environment variable whose value it has if that is set."""
    only: Callable[[str], bool] = lambda _model: True
    """Whether a model is asked this way; others need what only litellm does for them."""

    def headers(self) -> dict[str, str]:
        """Headers that go with every request, from the environment."""
        return {name: value for name, variable in self.headers_env if (value := os.environ.get(variable))}


def _has_its_own_name(model: str) -> bool:
    """Not an alias such as `grok-latest`, which litellm looks up under the name of what it stands for."""
    return not model.endswith("-latest")


def _takes(provider: str, parameters: frozenset[str]) -> Takes:
    """These parameters, and an effort where the price map says that the model reasons."""
    return lambda model: parameters | _REASONS if says(provider, model, "supports_reasoning") else parameters


def _taken_by_xai(model: str) -> frozenset[str]:
    missing: set[str] = set()
    if "grok-4" in model or "grok-code-fast" in model:
        missing |= {"frequency_penalty", "stop"}
    if "grok-3-mini" in model:
        missing |= {"stop"}
    return _takes("xai", COMMON - missing)(model)


def _taken_by_together(model: str) -> frozenset[str]:
    missing: set[str] = set()
    if says("together_ai", model, "supports_function_calling") is False:
        missing |= {"tools", "tool_choice"}
    if says("together_ai", model, "supports_response_schema") is False:
        missing |= {"response_format"}
    return COMMON - missing


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": Dialect(
            "https://api.openai.com/v1",
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            takes=taken_by_openai,
            shape=shape_openai,
            only=_has_its_own_name,
        ),
        "hosted_vllm": Dialect(
            None,
            ("HOSTED_VLLM_API_BASE",),
            ("HOSTED_VLLM_API_KEY",),
            takes=lambda _model: COMMON | _REASONS,
            shape=shaping.for_vllm,
        ),
        "lm_studio": Dialect(None, ("LM_STUDIO_API_BASE",), ("LM_STUDIO_API_KEY",), prefix="lm_studio/"),
        "llamafile": Dialect(
            "http://127.0.0.1:8080/v1", ("LLAMAFILE_API_BASE",), ("LLAMAFILE_API_KEY",), prefix="llamafile/"
        ),
        "litellm_proxy": Dialect(
            None,
            ("LITELLM_PROXY_API_BASE",),
            takes=lambda _model: COMMON | _REASONS | {"thinking"},
            prefix="litellm_proxy/",
        ),
        "deepseek": Dialect(
            "https://api.deepseek.com/beta",
            ("DEEPSEEK_API_BASE",),
            takes=lambda _model: COMMON | _REASONS | {"thinking"},
            shape=shaping.for_deepseek,
        ),
        "dashscope": Dialect(
            "https://dashscope.aliyuncs.com/compatible-mode/v1",
            ("DASHSCOPE_API_BASE",),
            takes=lambda _model: COMMON | _REASONS,
            prefix="dashscope/",
        ),
        "moonshot": Dialect(
            "https://api.moonshot.ai/v1",
            ("MOONSHOT_API_BASE",),
            takes=_takes("moonshot", COMMON),
            shape=shaping.for_moonshot,
            prefix="moonshot/",
            only=lambda model: "kimi-thinking-preview" not in model and _has_its_own_name(model),
        ),
        "mistral": Dialect(
            "https://api.mistral.ai/v1",
            takes=_takes("mistral", _MODEST),
            shape=shaping.for_mistral,
            ending="/v1",
            # These think in prompts that litellm adds, and in parts that it takes apart.
            only=lambda model: "magistral" not in model.lower() and not says("mistral", model, "supports_reasoning"),
        ),
        "xai": Dialect(
            "https://api.x.ai/v1",
            ("XAI_API_BASE",),
            takes=_taken_by_xai,
            shape=shaping.for_xai,
            read=shaping.read_xai,
            only=_has_its_own_name,
        ),
        "groq": Dialect(
            "https://api.groq.com/openai/v1",
            ("GROQ_API_BASE",),
            takes=_takes("groq", COMMON),
            shape=shaping.without_thoughts,
            # For others litellm makes a tool of a schema.
            only=lambda model: says("groq", model, "supports_response_schema") is True,
        ),
        "cerebras": Dialect(
            "https://api.cerebras.ai/v1",
            ("CEREBRAS_API_BASE",),
            takes=_takes("cerebras", _MODEST - {"parallel_tool_calls"}),
            prefix="cerebras/",
        ),
        "together_ai": Dialect("https://api.together.ai/v1", ("TOGETHER_AI_API_BASE",), takes=_taken_by_together),
        "openrouter": Dialect(
            "https://openrouter.ai/api/v1",
            ("OPENROUTER_API_BASE",),
            takes=lambda _model: COMMON | _REASONS,
            shape=shaping.for_openrouter,
            headers_env=(("HTTP-Referer", "OR_SITE_URL"), ("X-Title", "OR_APP_NAME")),
            # `openrouter/auto` is a model's own name.
            only=lambda model: "/" in model,
        ),
    }
)
"""By provider, in litellm's words. All others are asked through litellm."""
