"""Which backends go the direct client, where to and with what key."""

import subprocess
import sys
from contextlib import aclosing
from typing import Any

import pytest
from chat_server import ChatServer

from refinesynth.backends import Backend
from refinesynth.backends.backend import Mixed
from refinesynth.client.classify_error import ErrorCategory, FailureAction, classify_error
from refinesynth.client.http.direct_client import DirectCompletion
from refinesynth.client.http.reply import UnsupportedParamsError
from refinesynth.client.http.transport import MIN_FOR_DIRECT, direct_obstacle, path_of, with_path
from refinesynth.errors import ConfigurationError

DIRECT = ["gpt-4o", "hosted_vllm/m", "openai/mine", "gpt-5.1", "o3"]
NOT_DIRECT = [
    "anthropic/claude-sonnet-5-5",
    "gemini/gemini-3.8-flash",
    "azure/gpt-4o",
    "bedrock/anthropic.claude-3",
    "ollama_chat/qwen3:8b",
    "fireworks_ai/qwen3-8b",
    # Speaks, searches, answers on another endpoint, or thinks in ways that litellm writes prompts for.
    "gpt-4o-audio-preview",
    "gpt-5-search-api",
    "gpt-5-pro",
    # Not compared with litellm.
    "mistral/mistral-large-latest",
    "deepseek/deepseek-flash",
    "lm_studio/m",
    "nothing-that-is-known",
]


def backend(model: str = "hosted_vllm/m", **settings: Any) -> Backend:
    return Backend.model_validate({"model": model, **settings})


@pytest.mark.parametrize("model", DIRECT)
def test_openai_compatible_servers_are_asked_straight(model: str) -> None:
    assert isinstance(DirectCompletion(backend(model)), DirectCompletion)
    assert path_of(backend(model), in_flight=MIN_FOR_DIRECT).path == "direct"


@pytest.mark.parametrize(
    ("in_flight", "settings", "path"),
    [
        (MIN_FOR_DIRECT, {}, "direct"),
        (MIN_FOR_DIRECT - 1, {}, "litellm"),
        (16, {}, "litellm"),
        (1_000, {"max_in_flight": MIN_FOR_DIRECT - 1}, "litellm"),
        (16, {"max_in_flight": 1_000}, "litellm"),
        (16, {"path": "direct"}, "direct"),
        (1_000, {"path": "litellm"}, "litellm"),
    ],
)
def test_auto_is_litellm_unless_many_requests_may_be_in_flight(
    in_flight: int, settings: dict[str, Any], path: str
) -> None:
    asked = backend(**settings)
    assert path_of(asked, in_flight=in_flight).path == path
    assert with_path(asked, in_flight=in_flight) == asked.model_copy(update={"path": path})


def test_each_of_a_mixture_takes_its_own_path() -> None:
    mixed = Mixed.of([backend(), backend("anthropic/claude"), backend(max_in_flight=1)])
    assert [one.path for one in with_path(mixed, in_flight=MIN_FOR_DIRECT).members] == ["direct", "litellm", "litellm"]


@pytest.mark.parametrize("model", NOT_DIRECT)
def test_all_others_through_litellm(model: str) -> None:
    assert path_of(backend(model), in_flight=MIN_FOR_DIRECT).path == "litellm"
    with pytest.raises(ConfigurationError, match="path=direct"):
        DirectCompletion(backend(model, path="direct"))


@pytest.mark.parametrize(
    "settings",
    [
        {"extra": {"fallbacks": ["gpt-4o"]}},
        {"extra": {"drop_params": True}},
        {"extra": {"extra_body": {"model": "other"}}},
        {"extra": {"thinking": {"type": "enabled", "budget_tokens": 5}}},
        # Those that only some models take that reason.
        {"model": "gpt-5.1", "temperature": 0.5},
        {"model": "gpt-5.1", "extra": {"reasoning_effort": "none"}},
    ],
)
def test_settings_that_only_litellm_understands_are_left_to_it(settings: dict[str, Any]) -> None:
    assert direct_obstacle(backend(**settings)) is not None


@pytest.mark.parametrize("variable", ["SSL_VERIFY", "OPENAI_ORGANIZATION"])
def test_so_are_variables(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "False")
    assert variable in str(direct_obstacle(backend()))


def test_so_is_a_proxy_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://proxy.invalid:1080")
    with pytest.raises(ConfigurationError, match="proxy"):
        DirectCompletion(backend(base_url="http://far.invalid/v1", path="direct"))


def test_tools_of_recent_openai_models_need_the_other_endpoint() -> None:
    assert direct_obstacle(backend("gpt-5.4")) is None
    assert direct_obstacle(backend("gpt-5.4", output_mode="tool")) is not None
    assert direct_obstacle(backend("gpt-5.4", output_mode="tool", base_url="http://localhost/v1")) is None


@pytest.mark.parametrize(
    ("model", "settings", "variables", "address"),
    [
        ("gpt-4o", {}, {}, "https://api.openai.com/v1"),
        ("gpt-4o", {}, {"OPENAI_BASE_URL": "http://mine.invalid/v1/"}, "http://mine.invalid/v1"),
        (
            "gpt-4o",
            {"base_url": "http://h.invalid/v1"},
            {"OPENAI_BASE_URL": "http://no.invalid"},
            "http://h.invalid/v1",
        ),
        ("hosted_vllm/m", {}, {}, "http://localhost:8000/v1"),
        ("hosted_vllm/m", {}, {"HOSTED_VLLM_API_BASE": "http://gpu.invalid/v1"}, "http://gpu.invalid/v1"),
    ],
)
def test_requests_go_where_litellm_sends_them(
    model: str, settings: dict[str, Any], variables: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert f"'{address}/chat/completions'" in repr(DirectCompletion(backend(model, **settings)))


@pytest.mark.parametrize(
    ("settings", "variables", "sent"),
    [
        ({"model": "openai/m"}, {"OPENAI_API_KEY": "k-1"}, "none"),
        ({"model": "openai/m", "api_key_env": "MINE"}, {"MINE": "k-2", "OPENAI_API_KEY": "k-1"}, "k-2"),
        ({"model": "hosted_vllm/m"}, {"HOSTED_VLLM_API_KEY": "k-3"}, "none"),
    ],
)
async def test_a_key_goes_to_nobody_whom_it_is_not_meant_for(
    settings: dict[str, Any], variables: dict[str, str], sent: str, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    completion = DirectCompletion(backend(base_url=server.url, **settings))
    async with aclosing(completion):
        await completion(messages=[])
    assert [headers["authorization"] for headers in server.headers] == [f"Bearer {sent}"]


async def test_a_server_named_by_the_providers_variable_gets_the_providers_key(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "k-3")
    completion = DirectCompletion(backend())
    async with aclosing(completion):
        await completion(messages=[])
    assert server.headers[0]["authorization"] == "Bearer k-3"


async def test_an_argument_that_is_not_taken_is_a_setting_at_fault() -> None:
    completion = DirectCompletion(backend("gpt-5.1"))
    for argument in ({"stop": ["x"]}, {"temperature": 0.5, "reasoning_effort": "high"}, {"unheard_of": 1}):
        with pytest.raises(UnsupportedParamsError) as caught:
            await completion(messages=[], **argument)
        fault = classify_error(caught.value, backend("gpt-5.1"))
        assert (fault.category, fault.action) == (ErrorCategory.REJECTED, FailureAction.STOP)


@pytest.mark.process
def test_a_backend_that_is_asked_directly_never_loads_litellm() -> None:
    program = """
import sys
from refinesynth.backends import Backend
from refinesynth.client import open_model
from refinesynth.client.http.transport import with_path
open_model(Backend(model="hosted_vllm/m", path="direct"))
open_model(with_path(Backend(model="openai/m", base_url="http://localhost/v1"), in_flight=128))
print("litellm" in sys.modules)
open_model(with_path(Backend(model="hosted_vllm/m"), in_flight=127))
print("litellm" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\nTrue\n"
