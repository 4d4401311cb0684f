"""Embedding models: any that litellm knows, or sentence-transformers on this machine."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import anyio

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, server_of
from refinesynth.backends.retrying import GaveUp, persist
from refinesynth.backends.sorting import AnswerFault, Kind, Step
from refinesynth.errors import ConfigurationError, RunStopped
from refinesynth.personas.embedding import Embedded, Embedder

LOCAL = "local:"
"""Prefix of models that run on this machine; a name or folder of sentence-transformers follows."""


class Embed(Protocol):
    """What `litellm.aembedding` is called as; answers as OpenAI's API does."""

    def __call__(self, **request: Any) -> Awaitable[object]: ...


class Price(Protocol):
    """US dollars for that many prompt tokens; None where no price is known."""

    def __call__(self, tokens: int, /) -> float | None: ...


def open_embedder(spec: str | Backend) -> Embedder:
    """The embedder of that name: a litellm model string such as `openai/text-embedding-3-small`, or `local:MODEL`.

    Nothing is loaded or asked yet.

    Raises:
        ConfigurationError: The name is empty, or it is local and sentence-transformers is not installed.
    """
    if isinstance(spec, Backend):
        return LiteLLMEmbedder(spec)
    name = spec.strip()
    if name.startswith(LOCAL):
        from refinesynth.backends.local_embedding import LocalEmbedder

        return LocalEmbedder(name.removeprefix(LOCAL))
    if not name or name.split() != [name]:
        raise ConfigurationError(
            f"{spec!r} is no embedding model; give a litellm model string such as openai/text-embedding-3-small, or "
            f"{LOCAL}all-MiniLM-L6-v2 for one of sentence-transformers"
        )
    return LiteLLMEmbedder(Backend(model=name))


class LiteLLMEmbedder:
    """Asks an embedding model through litellm, with the retries of a backend."""

    def __init__(self, backend: Backend, *, call: Embed | None = None, price: Price | None = None) -> None:
        """Nothing is asked yet. `call` stands in for `litellm.aembedding`, `price` for litellm's price map."""
        self.backend = backend
        self._call = call or _ask_litellm
        self._price = price

    @property
    def name(self) -> str:
        """The model and the server that it is asked at."""
        return f"{self.backend.model} {self.backend.base_url or ''}".strip()

    async def __call__(self, texts: Sequence[str], /) -> Embedded:
        """Embed some texts by one request.

        Raises:
            RunStopped: The model cannot be asked, or did not answer in all attempts.
        """
        request: dict[str, Any] = {"model": self.backend.model, "input": list(texts), "timeout": self.backend.timeout}
        if (server := server_of(self.backend)) is not None:
            request["api_base"] = server

        async def attempt(_faults: int) -> tuple[list[list[float]], int]:
            # The key is an argument made for each call: no frame of a traceback holds it then.
            with anyio.fail_after(self.backend.timeout):
                return _read(await self._call(**request, **self._key()), len(texts))

        try:
            vectors, tokens = await persist(attempt, self.backend)
        except GaveUp as gave_up:
            message = str(gave_up)
        else:
            return Embedded(vectors, tokens, self._cost(tokens))
        # Outside of the handler: an exception that hangs on this one would carry the server's own words.
        raise RunStopped(message)

    def _key(self) -> dict[str, str]:
        if (key := key_of(self.backend)) is not None:
            return {"api_key": key}
        # The OpenAI client insists on a key, even for servers that look at none.
        return {} if server_of(self.backend) is None else {"api_key": "none"}

    def _cost(self, tokens: int) -> float | None:
        if self.backend.input_price is not None:
            return tokens * self.backend.input_price / 1e6
        if self._price is None:
            self._price = _Pricer(self.backend.model)
        return self._price(tokens)


@dataclass(frozen=True)
class _Pricer:
    model: str

    def __call__(self, tokens: int, /) -> float | None:
        from refinesynth.backends.litellm_sdk import litellm

        try:
            prompt, _ = litellm().cost_per_token(
                model=self.model, prompt_tokens=tokens, completion_tokens=0, call_type="aembedding"
            )
        except Exception:  # noqa: BLE001 - litellm names the lack of a price in several ways
            return None
        return float(prompt)


async def _ask_litellm(**request: Any) -> object:
    from pydantic_ai.models import check_allow_model_requests

    from refinesynth.backends.litellm_sdk import litellm

    check_allow_model_requests()
    return await litellm().aembedding(**request, max_retries=0)


def _read(answer: object, wanted: int) -> tuple[list[list[float]], int]:
    """Vectors in the order of the texts, and the tokens that were billed.

    Raises:
        AnswerFault: The answer is not of the form of OpenAI's API, or not about these texts.
    """
    data = _part(answer, "data")
    if not isinstance(data, list) or len(cast("list[object]", data)) != wanted:
        raise AnswerFault(Step.RETRY, Kind.SERVER, f"sent something that is not {wanted:,} embeddings")
    vectors: list[list[float] | None] = [None] * wanted
    for position, item in enumerate(cast("list[object]", data)):
        index, vector = _part(item, "index"), _part(item, "embedding")
        at = index if isinstance(index, int) else position
        if not 0 <= at < wanted or not isinstance(vector, list) or not vector:
            raise AnswerFault(Step.RETRY, Kind.SERVER, "sent an embedding that is no list of numbers")
        vectors[at] = cast("list[float]", vector)
    complete = [vector for vector in vectors if vector is not None]
    if len(complete) != wanted:
        raise AnswerFault(Step.RETRY, Kind.SERVER, f"sent {len(complete):,} embeddings for {wanted:,} texts")
    tokens = _part(_part(answer, "usage"), "total_tokens")
    return complete, tokens if isinstance(tokens, int) and tokens >= 0 else 0


def _part(value: object, name: str) -> object:
    """A field of an answer, which litellm gives as an object and others as a mapping."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(name)
    return getattr(value, name, None)
