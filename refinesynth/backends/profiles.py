"""What a model can do, from pydantic-ai's table of profiles, and how it is therefore asked for structured output.

The table is better than litellm's flags, which claim a native JSON schema for DeepSeek and deny it to local models.
"""

from typing import Any, cast

from pydantic_ai.models import infer_model_profile
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile, merge_profile

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.providers import PROVIDERS, split

_BEFORE_SCHEMAS = ("gpt-4o-2024-05-13", "gpt-4-", "gpt-3.5")
"""OpenAI's models from before structured outputs; the table leaves them to the API, which answers 400."""
_COMPATIBLE = ModelProfile(
    supports_json_schema_output=True, supports_json_object_output=True, may_tokenize_special_tokens_in_content=True
)
"""Any server that speaks OpenAI's language, whatever it serves. The rehearsal is one, so that it is asked the same
in-process."""


def profile_of(backend: Backend) -> ModelProfile:
    """The profile of a backend's model, with its output mode chosen.

    Unless `backend.output_mode` says otherwise: native JSON schema where the model has it, else a tool call, else
    prompted JSON.
    """
    table = _table(backend)
    mode = backend.output_mode
    if mode is OutputMode.AUTO:
        mode = _best(table)
    chosen = ModelProfile(default_structured_output_mode=cast("Any", mode.value))
    if mode is OutputMode.NATIVE:
        chosen["supports_json_schema_output"] = True
    if mode is OutputMode.TOOL:
        chosen["supports_tools"] = True
    return merge_profile(table, chosen)


def _table(backend: Backend) -> ModelProfile:
    provider, name = split(backend.model)
    if backend.rehearses or (provider == "openai" and backend.base_url is not None):
        return merge_profile(DEFAULT_PROFILE, _COMPATIBLE)
    known = PROVIDERS.get(provider)
    table = infer_model_profile(f"{known.profile}{name}" if known else f"litellm:{provider}/{name}")
    if provider == "openai" and (name == "gpt-4" or name.startswith(_BEFORE_SCHEMAS)):
        return merge_profile(table, ModelProfile(supports_json_schema_output=False))
    return table


def _best(table: ModelProfile) -> OutputMode:
    if table.get("supports_json_schema_output", False):
        return OutputMode.NATIVE
    return OutputMode.TOOL if table.get("supports_tools", True) else OutputMode.PROMPTED


def mode_for_open_schema(backend: Backend) -> OutputMode | None:
    """How to ask for objects with free keys if the usual mode cannot; None if it can, or the user chose the mode."""
    known = PROVIDERS.get(split(backend.model)[0])
    if backend.output_mode is not OutputMode.AUTO or known is None or known.open_schema is OutputMode.NATIVE:
        return None
    return known.open_schema


def is_open(schema: object) -> bool:
    """Whether a JSON schema has an object with keys that it does not name."""
    if not isinstance(schema, dict):
        return False
    node = cast("dict[str, Any]", schema)
    named: dict[str, Any] = node.get("properties") or {}
    if node.get("type") == "object" and (node.get("additionalProperties") or not named):
        return True
    below: list[object] = [*named.values(), *node.get("$defs", {}).values(), node.get("items")]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        below.extend(node.get(key, ()))
    return any(is_open(child) for child in below)


def forces_tools(backend: Backend, profile: ModelProfile) -> bool:
    """Whether a tool call can be demanded; some models refuse it, some only while they think."""
    if not profile.get("supports_forced_tool_choice", True):
        return False
    thinks = profile.get("thinking_enabled_by_default", False) and not _thinking_is_off(backend)
    return not thinks or profile.get("supports_forced_tool_choice_with_thinking", True)


def _thinking_is_off(backend: Backend) -> bool:
    thinking = backend.extra.get("thinking")
    disabled = isinstance(thinking, dict) and thinking.get("type") == "disabled"
    return disabled or backend.extra.get("reasoning_effort") in {"none", "disable"}
