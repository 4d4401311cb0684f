"""Models for Inspect: the values of `--model`, and our backends as the provider `refinesynth/`.

`refinesynth/gpt-4o`, `refinesynth/deepseek` and `refinesynth/rehearsal` are backends with our keys, retries, rate limits
and budget instead of Inspect's.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

import orjson
from inspect_ai.log import EvalLog, EvalSampleSummary
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelInfo,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
    set_model_info,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from refinesynth.backends.backend import Backend
from refinesynth.backends.names import resolve
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.price_table import price_of
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.model import BackendModel
from refinesynth.client.model_factory import open_model as open_client
from refinesynth.client.session import RequestContext, Session, charged_to
from refinesynth.errors import ConfigurationError, InputError, RunStopped, StorageError
from refinesynth.evaluate import agent, chat_form
from refinesynth.evaluate.environment_pool import MAX_PROCESSES
from refinesynth.files.atomic_write import write_json_file
from refinesynth.files.gguf import check_gguf, is_gguf, unpack_gguf
from refinesynth.lazy_imports import check_installed
from refinesynth.outcome import Cost
from refinesynth.roles.player import request_parameters
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import Usage

PROVIDER = "refinesynth"
MAX_IN_FLIGHT = 64
"""Requests at once if the backend sets no bound; the rate limiter adapts below it."""

ON_FAILURE: ContextVar[Callable[[], object] | None] = ContextVar("on_failure", default=None)
"""Function that is called after a failed request of a backend, before the error is raised."""


@modelapi(name=PROVIDER)
class OwnBackend(ModelAPI):
    """One backend. Arguments are settings of `Backend`, and `budget` (`5usd`, `2Mtok`) for this model and process."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        budget: str | None = None,
        **settings: Any,
    ) -> None:
        """Resolve the backend without opening it; raises ConfigurationError for an unknown backend or setting."""
        if api_key is not None:
            raise ConfigurationError("an API key is given as an argument; name its variable instead: api_key_env=NAME")
        super().__init__(model_name, base_url, None, [], config or GenerateConfig())
        self.backend = backend_of(model_name, {**settings, **({} if base_url is None else {"base_url": base_url})})
        self.tracker = BudgetTracker(Budget.of(budget), prices=[price_of(self.backend)])
        """Tracker of the spent budget; several models may share one."""
        self.keep_spent: Callable[[], object] = lambda: None
        """Function that is called after each request, answered or not; its errors end the requests."""
        self._model: BackendModel | None = None
        self._stopped: RunStopped | StorageError | None = None

    def max_connections(self) -> int:
        return self.backend.max_in_flight or MAX_IN_FLIGHT

    def connection_key(self) -> str:
        return f"{self.backend.label} {self.backend.base_url}"

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's own name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Generate a message with text, or with calls of `tools`.

        Raises:
            RunStopped: The backend cannot be used, or the budget is spent; later calls raise it too.
            StorageError: The cost cannot be written; later calls raise it too.
            EpisodeAbandoned: This request cannot be answered.
        """
        if self._stopped is not None:
            raise self._stopped
        try:
            if self._model is None:
                self._model = open_client(self.backend)
            with charged_to(RequestContext(Session(tracker=self.tracker), "player")):
                parameters = request_parameters(map(chat_form.definition, tools)) if tools else ModelRequestParameters()
                messages = [*map(_message, input)]
                try:
                    response = await self._model.request(messages, _settings(config, tool_choice), parameters)
                finally:
                    self.keep_spent()
        except Exception as error:
            if isinstance(error, RunStopped | StorageError):
                self._stopped = error
            if (callback := ON_FAILURE.get()) is not None:
                callback()
            raise
        return _output(response, self.model_name)

    async def aclose(self) -> None:
        if self._model is not None:
            await self._model.aclose()
            self._model = None


def backend_of(name: str, settings: Mapping[str, Any]) -> Backend:
    """The backend with these settings; raises ConfigurationError for unknown ones."""
    backend = resolve(name)
    try:
        return Backend(**{**backend.model_dump(exclude_defaults=True), **settings}) if settings else backend
    except ConfigurationError as error:
        raise ConfigurationError(f"the backend {name!r}: {str(error).removeprefix('Backend: ')}") from None


def _settings(config: GenerateConfig, choice: ToolChoice) -> ModelSettings:
    """Convert Inspect's settings to pydantic-ai's; the backend decides settings that are None."""
    values = {
        "tool_choice": {"any": "required", "none": "none"}.get(str(choice)),
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "stop_sequences": config.stop_seqs,
    }
    return cast("ModelSettings", {name: value for name, value in values.items() if value is not None})


def _message(message: ChatMessage) -> ModelMessage:
    if isinstance(message, ChatMessageAssistant):
        calls = [ToolCallPart(call.function, call.arguments, tool_call_id=call.id) for call in message.tool_calls or ()]
        thinking = [ThinkingPart(thought)] if (thought := chat_form.reasoning_of(message)) else []
        texts = [TextPart(message.text)] if message.text or not calls else []
        return ModelResponse(parts=[*thinking, *texts, *calls])
    if isinstance(message, ChatMessageTool):
        answer = ToolReturnPart(message.function or "", message.text, tool_call_id=message.tool_call_id or "")
        return ModelRequest(parts=[answer])
    part = SystemPromptPart(message.text) if message.role == "system" else UserPromptPart(message.text)
    return ModelRequest(parts=[part])


def _output(response: ModelResponse, name: str) -> ModelOutput:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = [_call(part) for part in response.parts if isinstance(part, ToolCallPart)]
    thoughts = [ContentReasoning(reasoning=part.content) for part in response.parts if isinstance(part, ThinkingPart)]
    content: str | list[Content] = [*thoughts, ContentText(text=text)] if calls else text
    # The client returns complete completions only.
    output = ModelOutput.from_content(f"{PROVIDER}/{name}", content, stop_reason="tool_calls" if calls else "stop")
    output.message.tool_calls = calls or None
    usage, cost = response.usage, response.usage.cost
    output.usage = ModelUsage(
        # Inspect counts cached tokens separately.
        input_tokens=usage.input_tokens - usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_cache_read=usage.cache_read_tokens,
        total_cost=None if cost is None else float(cost),
    )
    return output


def _call(part: ToolCallPart) -> ToolCall:
    try:
        return ToolCall(part.tool_call_id, part.tool_name, part.args_as_dict(raise_if_invalid=True))
    except (ValueError, AssertionError):
        problem = f"its arguments are no JSON object: {quoted(part.args_as_json_str())}"
        return ToolCall(part.tool_call_id, part.tool_name, {}, parse_error=problem)


INSPECT_PROVIDERS = frozenset({"hf", "transformer_lens", "nnterp", "mockllm", "llama-cpp-python", "sglang"})
"""Prefixes of names that Inspect's own providers run; all other names are our backends."""


SPENT = "spent.json"
"""File in the folder of an evaluation: the cost of all its requests, of logs that Inspect has removed included."""


def is_backend(model: Model) -> bool:
    # Inspect's decorator turns `OwnBackend` into a function, which excludes `isinstance`.
    return hasattr(model.api, "tracker")


_Logs: TypeAlias = Sequence[tuple[EvalLog, Sequence[EvalSampleSummary]]]


def set_budget(models: Sequence[Model], budget: str | None, folder: Path, logs: _Logs) -> None:
    """Set a common budget for the backends among the models, less what earlier calls spent, and keep the cost in `folder`.

    A folder from an earlier version has no file of the cost, only `logs`. Raises InputError: the file cannot be read.
    """
    apis = [cast("Any", model.api) for model in models if is_backend(model)]
    if not apis:
        return
    path = folder / SPENT
    try:
        earlier = Cost.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        earlier = _spent_in_logs(logs, {str(model) for model in models if model.api in apis})
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read; move it away, and the budget counts the logs alone") from error
    tracker = BudgetTracker(Budget.of(budget), spent=earlier, prices=[price_of(api.backend) for api in apis])

    def keep_spent() -> None:
        # A sum with an unknown price would count as 0 against the next budget.
        paid = Cost(usage=tracker.paid.spent().usage, cost_usd=tracker.paid.cost_usd)
        write_json_file(path, (earlier + paid).model_dump())

    for api in apis:
        api.tracker, api.keep_spent = tracker, keep_spent


def _spent_in_logs(logs: _Logs, models: Collection[str]) -> Cost:
    """Cost of these models in the logs; a sample that a later log has taken over counts once."""
    usages: dict[str, list[ModelUsage]] = {}
    for header, samples in logs:
        for sample in samples:
            key = sample.uuid or f"{header.location} {sample.id} {sample.epoch}"
            usages[key] = [usage for name, usage in sample.model_usage.items() if name in models]
    total = sum((usage for sample in usages.values() for usage in sample), ModelUsage())
    cached = total.input_tokens_cache_read or 0
    usage = Usage(input_tokens=total.input_tokens + cached, cached_tokens=cached, output_tokens=total.output_tokens)
    return Cost(usage=usage, cost_usd=total.total_cost or 0.0)


_BLOCKS = 256
_BLOCK_BYTES = 1 << 16
_MODEL_FILES = re.compile(
    r"(config|adapter_config|generation_config|tokenizer.*)\.json|.+\.(safetensors|bin|jinja|model)"
)


def weights_digest(model: Model) -> str | None:
    """Digest of the files of a model in a local folder, the same for a copy of the folder; None for other models.

    Of a file over 16 MiB, 256 evenly spaced blocks of 64 KiB count, which any training changes.
    """
    folder = Path(str(model.model_args.get("model_path") or ""))
    if not (model.model_args.get("model_path") and folder.is_dir()):
        return None
    digest = blake2b(digest_size=16)
    for path in sorted(path for path in folder.iterdir() if _MODEL_FILES.fullmatch(path.name) and path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for number in range(_BLOCKS):
                file.seek(max(number * _BLOCK_BYTES, (size - _BLOCK_BYTES) * number // (_BLOCKS - 1)))
                digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


def open_model(name: str, *, temperature: float, settings: Mapping[str, Any], tools: bool = False) -> Model:
    """Open the model of `Evaluation.model` with settings of `Backend` or of Inspect's provider.

    `tools`: the model has to call functions. `set_budget` sets the budget, because Inspect reuses finished samples only
    for equal arguments of the model. For transformers, the temperature 0 becomes the setting of greedy decoding.
    Raises InputError if there is no such model or it cannot be opened.
    """
    control = name.removeprefix(f"{agent.PROVIDER}/")
    path = Path(name)
    if control in agent.CONTROLS and not path.is_dir():
        if settings:
            raise InputError(f"{name!r} is a control, which takes no settings; leave --set out")
        return get_model(f"{agent.PROVIDER}/{control}")
    if path.is_dir() or (path.is_file() and is_gguf(name)):
        folder = Path(unpack_gguf(name))
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise InputError(
                f"the folder {str(folder)!r} holds no model; expected config.json with weights and a tokenizer, as `refinesynth "
                "train` writes"
            )
        # A file keeps its own name: in a hub's cache it is a link to a file that is named by a digest.
        display_name = f"{chat_form.LOCAL if tools else 'hf'}/{(path.resolve() if path.is_dir() else path).name}"
        # Otherwise Inspect would look the name up on the hub, and names of local models must not be sent there.
        set_model_info(display_name, ModelInfo(context_length=_context_length(folder)))
        arguments = {"model_path": str(folder), "tokenizer_path": str(folder), **settings}
        return _open_inspect_model(display_name, arguments, greedy=temperature == 0)
    if path.is_file():
        raise InputError(
            f"the model {name!r} is a file; expected a GGUF file (NAME.gguf), a folder with config.json and weights, or a backend"
        )
    prefix, _, rest = name.partition("/")
    if prefix in INSPECT_PROVIDERS:
        name = f"{chat_form.LOCAL}/{rest}" if tools and prefix == "hf" else name
        return _open_inspect_model(name, settings, greedy=prefix == "hf" and temperature == 0)
    if prefix == "vllm" and rest:
        name = f"hosted_vllm/{rest}"
    backend = name.removeprefix(f"{PROVIDER}/")
    # Checked here, because Inspect puts a frame around errors of its models.
    try:
        backend_of(backend, settings)
    except ConfigurationError:
        if is_gguf(name):
            check_gguf(name)  # a mistyped path; servers of llama.cpp also name models so
        raise
    return get_model(f"{PROVIDER}/{backend}", memoize=False, **settings)


def _context_length(folder: Path) -> int | None:
    """Context window in tokens, from the model's configuration; None if it is unknown."""
    try:
        config: Any = orjson.loads((folder / "config.json").read_bytes())
        window = config.get("max_position_embeddings") or config["text_config"]["max_position_embeddings"]
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None
    return window if isinstance(window, int) and window > 0 else None


def _open_inspect_model(name: str, settings: Mapping[str, Any], *, greedy: bool) -> Model:
    if transformers := name.startswith(("hf/", f"{chat_form.LOCAL}/")):
        check_installed("train", "torch", "transformers", "accelerate")
    arguments: dict[str, Any] = {"do_sample": False, **settings} if greedy else dict(settings)
    if greedy:
        # Inspect also passes the temperature, and transformers warns that greedy decoding ignores it.
        logging.getLogger("transformers.generation.configuration_utils").addFilter(
            lambda record: "generation flags are not valid" not in str(record.msg)
        )
    # Inspect's provider waits two seconds before each batch of fewer than `max_connections` requests and ignores its own
    # `batch_size`.
    batch = arguments.get("batch_size", MAX_PROCESSES) if transformers else None
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise InputError(f"batch_size is {batch!r}; expected 1 or more")
    try:
        if name.startswith("hf/") and "tokenizer_call_args" not in arguments and _adds_special_tokens(name, arguments):
            # The chat template writes the special tokens, as in training, which has no prompts with them twice.
            arguments["tokenizer_call_args"] = {"add_special_tokens": False}
        return get_model(name, config=GenerateConfig(max_connections=batch), **arguments)
    except InputError:
        raise
    except Exception as error:  # Inspect, transformers and torch may raise anything.
        raise InputError(f"the model {name!r} cannot be opened: {error}") from error


def _adds_special_tokens(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if the tokenizer adds special tokens to a chat whose template already writes all of them."""
    transformers: Any = import_module("transformers")
    path = arguments.get("tokenizer_path") or arguments.get("model_path") or name.removeprefix("hf/")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path))
        if arguments.get("chat_template") is None and tokenizer.chat_template is None:
            return False
        return bool(tokenizer("a").input_ids != tokenizer("a", add_special_tokens=False).input_ids)
    except Exception:  # noqa: BLE001 - opening the model says what is wrong
        return False
