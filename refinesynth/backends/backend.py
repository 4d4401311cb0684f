"""Backend: a litellm model string with its settings; completion function; roles of models; log records."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from refinesynth.errors import ConfigurationError


class Role(StrEnum):
    """Role of a model; key of models, usage and cost."""

    SCRIPT_WRITER = "script_writer"
    """Author of an episode's script, from its persona."""
    DUNGEON_MASTER = "dungeon_master"
    """Environment in live play."""
    PLAYER = "player"
    """Agent in live play."""
    NARRATOR = "narrator"
    """Author of both voices in narrated play."""
    REPAIRER = "repairer"
    """Actor after a mistake of the Player, in runs with a repairer."""
    JUDGE = "judge"
    """Second opinion for the Verifier, off by default."""


REHEARSAL = "rehearsal"
"""Model string of the embedded offline backend; `:FAULT=RATE,...` sets fault rates, `:families=NAME+NAME` worlds."""

_SECRET = re.compile(r"(api[_-]?key|secret|passw|token$|authorization|credential|cookie)", re.IGNORECASE)


class OutputMode(StrEnum):
    """Method of requesting structured output from a model."""

    AUTO = "auto"
    """Native if the model supports it, else a tool call, else prompted."""
    NATIVE = "native"
    """JSON schema enforced by the provider (`response_format`)."""
    TOOL = "tool"
    """Arguments of a tool that the model must call."""
    PROMPTED = "prompted"
    """Schema in the prompt, JSON in the text; not enforced."""


class Backend(BaseModel):
    """Model with its settings. It holds the *name* of the variable with the key, never a key.

    Roles with equal backends share one model: its connections, its rate limits and its failure policy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    model: str = Field(min_length=1)
    """litellm model string (`gpt-4o`, `hosted_vllm/Qwen/Qwen3-8B`), or `rehearsal`."""
    name: str = ""
    """Name in messages and listings; the model string if empty."""
    base_url: str | None = None
    """Server, such as `http://localhost:8000/v1`; None for the provider's own."""
    api_key_env: str | None = None
    """Environment variable that holds the key; None takes the provider's usual one, and no key for a `base_url`."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """None for the provider's default, as with the next two."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Probability mass from which tokens are sampled."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of one answer."""
    seed: bool = Field(default=True, exclude_if=bool)
    """True if requests carry a seed, which makes some servers deterministic; False for a server that refuses it."""
    timeout: float = Field(default=300, gt=0)
    """Seconds of one attempt, from the request to the last byte; waiting for a turn does not count."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """Requests are spaced evenly at this rate; None sets no limit."""
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """Prompt and completion tokens together; None sets no limit."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """Most requests at once; below it, the number follows the server's capacity. None sets no bound."""
    output_mode: OutputMode = OutputMode.AUTO
    """Way in which answers of a fixed form are requested."""
    path: Literal["auto", "direct", "litellm"] = "auto"
    """Transport: `litellm` through its SDK, `direct` over our own HTTP client for OpenAI-compatible servers; both
    give the same. `auto` is `litellm`, and `direct` where it is possible and 128 or more requests may be in flight."""
    retries: int = Field(default=8, ge=0)
    """Attempts after the first when the backend fails: timeout, 429, 5xx, no connection, broken body."""
    content_retries: int = Field(default=2, ge=0)
    """Attempts after the first when an answer came but is empty or cut off; each is paid for."""
    longest_wait: float = Field(default=60, gt=0)
    """Most seconds between two attempts, if the server asks for no more (Retry-After)."""
    outage: float = Field(default=600, ge=0)
    """Seconds that a run waits for a backend that has gone down, or that asks to wait (Retry-After), before it stops."""
    input_price: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens; None takes litellm's price map. So do the next two."""
    cached_price: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens that the provider read from its cache."""
    output_price: float | None = Field(default=None, ge=0)
    """US dollars per million completion tokens."""
    extra: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Further arguments for `litellm.acompletion`, such as `{"reasoning_effort": "low"}`; null removes one from the
    request."""

    if not TYPE_CHECKING:  # a type checker derives the parameters from the fields

        def __init__(self, **settings: Any) -> None:
            """Check the settings.

            Raises:
                ConfigurationError: A setting is unknown or has a wrong value. The message quotes no setting's value,
                    which may be a key.
            """
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise ConfigurationError(f"Backend: {_problems(error, type(self))}") from None

    @property
    def label(self) -> str:
        """Name, or the model string."""
        return self.name or self.model

    @property
    def members(self) -> "tuple[Backend, ...]":
        """This backend alone; several for a mixture."""
        return (self,)

    @property
    def is_rehearsal(self) -> bool:
        """True for the embedded offline backend."""
        return self.model == REHEARSAL or self.model.startswith(f"{REHEARSAL}:")

    @field_validator("base_url", mode="after")
    @classmethod
    def _without_credentials(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if not re.match(r"https?://", url):
            raise ValueError("base_url begins with http:// or https://")
        if re.match(r"https?://[^/]*@", url):
            raise ValueError("base_url holds a password; name an environment variable in api_key_env instead")
        if any(name.casefold() == "key" or _SECRET.search(name) for name, _ in parse_qsl(urlsplit(url).query)):
            raise ValueError("base_url holds a key in its query; name an environment variable in api_key_env instead")
        return url.rstrip("/")

    @field_validator("api_key_env", mode="after")
    @classmethod
    def _check_variable_name(cls, name: str | None) -> str | None:
        # A key pasted here by mistake must not get into config.json.
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError("api_key_env is the name of an environment variable, such as OPENAI_API_KEY, not a key")
        return name

    @model_validator(mode="after")
    def _check_extra(self) -> Self:
        # At any depth: headers may hold keys.
        for name in _keys(self.extra):
            if _SECRET.search(name):
                raise ValueError(f"extra: {name!r} looks like a secret; put it in a variable named by api_key_env")
        body = self.extra.get("extra_body")
        parts = (self.extra, body if isinstance(body, Mapping) else {})
        if name := next((name for name in ("stream", "stream_options") if any(part.get(name) for part in parts)), None):
            raise ValueError(f"extra: {name} asks for a streamed answer; refinesynth reads whole answers; take it out")
        if name := next((n for n in ("n", "best_of") if any(part.get(n) not in (None, 1) for part in parts)), None):
            raise ValueError(f"extra: {name} asks for several answers to each request, and one is used; take it out")
        for name in self.extra.keys() & {"model", "messages", "timeout"}:
            raise ValueError(
                f"extra: {name} would be overwritten, or missing if null; give the backend's own model or timeout"
            )
        if self.extra.get("response_format") is not None and self.output_mode in {OutputMode.NATIVE, OutputMode.TOOL}:
            raise ValueError(
                f"extra: response_format would be overwritten or contradict output_mode={self.output_mode}; take one of them out "
                "(with output_mode auto or prompted, the response_format is sent as it stands)"
            )
        return self

    @property
    def structured(self) -> OutputMode:
        """Output mode by the settings; PROMPTED instead of AUTO if `extra` has its own `response_format`."""
        has_own_format = self.output_mode is OutputMode.AUTO and self.extra.get("response_format") is not None
        return OutputMode.PROMPTED if has_own_format else self.output_mode


class Mixed(Backend):
    """Several backends for one role, which take turns by episode and by play.

    Settings that are not read through `members` are those of the first backend.
    """

    others: tuple[Backend, ...] = Field(min_length=1)

    @classmethod
    def of(cls, backends: Sequence[Backend]) -> Backend:
        """Return one backend for all of `backends`, in their order; a single backend itself."""
        first, *others = [member for backend in backends for member in backend.members]
        return cls(**dict(first), others=tuple(others)) if others else first

    @property
    def members(self) -> tuple[Backend, ...]:
        """Backends of the mixture, in their order."""
        first = {name: value for name, value in self if name != "others"}
        return (Backend(**first), *self.others)


def _problems(error: ValidationError, model: type[BaseModel]) -> str:
    problems: list[str] = []
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        name = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            hits = get_close_matches(name, model.model_fields, n=1)
            problems.append(f"there is no setting {name!r}; {f'did you mean {hits[0]}?' if hits else 'see its fields'}")
        else:
            problems.append(": ".join(filter(None, (name, item["msg"].removeprefix("Value error, ")))))
    return "; ".join(problems)


def _keys(value: Mapping[str, JsonValue] | JsonValue) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, nested in value.items():
            yield name
            yield from _keys(nested)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


NO_REASON = "null"
"""Finish reason of a completion whose server gives none; it counts as cut off."""


class Completion(Protocol):
    """Function that completes a chat, such as `litellm.acompletion` or the rehearsal.

    It takes litellm's keyword arguments and returns an OpenAI chat completion, as a dict or as an object with the same
    attributes. A completion without a `finish_reason` counts as complete. `refinesynth.client.classify_error`
    classifies its exceptions.
    """

    async def __call__(self, **request: object) -> object: ...


LOG = logging.getLogger("refinesynth.backends")
# Without a handler, Python prints warnings to stderr until the application configures logging.
LOG.addHandler(logging.NullHandler())


def report(event: str, backend: Backend, text: str, *, level: int = logging.WARNING, **facts: object) -> None:
    """Log a text, with its facts as an event."""
    LOG.log(level, "%s", text, extra={"facts": {"event": event, "backend": backend.label, **facts, "text": text}})
