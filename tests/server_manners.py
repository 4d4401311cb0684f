"""Servers of others, as far as they differ from ours: what each refuses, in its own words, and what it leaves out."""

from collections.abc import Callable, Mapping
from typing import Any

from refinesynth.client.http.reply import HttpError
from refinesynth.rehearsal import Rehearsal

Manner = Callable[[dict[str, Any]], None]
"""Refuses a request, or makes of it what the server does."""


class Mannered:
    """The rehearsal behind a server with such manners; keeps what it was asked and how often it refused."""

    def __init__(self, manner: Manner) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refused = 0
        self._manner = manner
        self._rehearsal = Rehearsal()

    async def __call__(self, **request: Any) -> object:
        self.requests.append(dict(request))
        try:
            self._manner(request)
        except HttpError:
            self.refused += 1
            raise
        return await self._rehearsal(**request)


def bare(request: dict[str, Any]) -> None:
    """Neither tools nor schemas."""
    for name in ("tools", "response_format"):
        if name in request:
            raise HttpError(400, f"this model does not support {name}")


def llama_cpp(request: dict[str, Any]) -> None:
    """Started without `--jinja`, and breaks over what its grammars do not know of a schema."""
    if "tools" in request:
        raise HttpError(500, "tools param requires --jinja flag")
    if "response_format" in request:
        raise HttpError(500, "Internal Server Error")


def vllm(request: dict[str, Any]) -> None:
    """Started without a parser of tool calls: it holds to schemas, and lets no model choose whether to call."""
    if request.get("tool_choice") == "auto":
        why = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        raise HttpError(400, why)


def transformers(request: dict[str, Any]) -> None:
    """Leaves out what it does not support, without a word."""
    for name in ("response_format", "tool_choice"):
        request.pop(name, None)


def litellm_proxy(request: dict[str, Any]) -> None:
    """Before a provider that takes neither schemas nor seeds."""
    if found := [name for name in ("response_format", "seed") if name in request]:
        why = f"litellm.UnsupportedParamsError: cohere does not support parameters: {found}, for model=m."
        raise HttpError(400, f"{why} To drop these, set `litellm.drop_params=True`")


def ollama(request: dict[str, Any]) -> None:
    """A model whose template knows no tools."""
    if "tools" in request:
        raise HttpError(400, "registry.ollama.ai/library/gemma2:2b does not support tools")


SERVERS: Mapping[str, Manner] = {
    "llama.cpp": llama_cpp,
    "vLLM": vllm,
    "transformers serve": transformers,
    "litellm proxy": litellm_proxy,
    "Ollama": ollama,
    "a bare server": bare,
}
