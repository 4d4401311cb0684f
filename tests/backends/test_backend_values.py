"""A backend is a value without secrets."""

import pytest
from pydantic import JsonValue

from refinesynth.backends import PRESETS, Backend
from refinesynth.backends.providers import key_of, key_variables, known_models, server_of, split_model
from refinesynth.client import describe
from refinesynth.errors import ConfigurationError

CANARY = "sk-canary-0123456789abcdef"

# Presets whose models litellm lists no price for: what runs on one's own machine, and nothing else.
LOCAL = {"rehearsal", "ollama", "vllm"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra": {"response_format": {"type": "json_object"}}, "output_mode": "native"}, "take one of them out"),
        ({"extra": {"response_format": {"type": "json_object"}}, "output_mode": "tool"}, "output_mode=tool"),
        ({"extra": {"model": "other"}}, "extra: model would be overwritten"),
        ({"extra": {"timeout": 5}}, "extra: timeout would be overwritten"),
    ],
)
def test_an_argument_that_would_be_overwritten_is_refused(settings: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Backend.model_validate({"model": "m", **settings})


def test_extra_settings_and_a_query_without_secrets_pass() -> None:
    extra: dict[str, JsonValue] = {
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}, "stop_token_ids": [1]},
        "max_tokens": 5,
    }
    assert Backend(model="m", base_url="https://h/v1?api-version=2024-10-21", extra=extra).extra == extra


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key_env": CANARY},
        {"extra": {"api_key": CANARY}},
        {"extra": {"Authorization": CANARY}},
        {"extra": {"extra_headers": {"Authorization": f"Bearer {CANARY}"}}},
        {"extra": {"extra_body": {"servers": [{"x-api-key": CANARY}]}}},
        {"base_url": f"https://user:{CANARY}@example.org/v1"},
        {"base_url": f"https://example.org/v1?key={CANARY}"},
        {"base_url": f"https://example.org/v1?version=2&api_key={CANARY}"},
        {"api_key": CANARY},
    ],
)
def test_a_key_is_refused_and_not_repeated(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Backend.model_validate({"model": "gpt-4o", **wrong})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"extra": {"stream": True}},
        {"extra": {"n": 4}},
        {"extra": {"n": 1, "extra_body": {"best_of": 2}}},
        {"extra": {"stream_options": {"include_usage": True}}},
        {"extra": {"stream": False, "extra_body": {"stream": True}}},
        {"model": ""},
        {"base_url": "localhost:8000"},
        {"timeout": 0},
        {"temperature": 3},
        {"requests_per_minute": 0},
        {"retries": -1},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"Backend: {next(iter(wrong))}: ") as refused:
        Backend.model_validate({"model": "gpt-4o", **wrong})
    assert "pydantic" not in str(refused.value)


def test_a_setting_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no setting 'timout'; did you mean timeout\?"):
        Backend(model="gpt-4o", timout=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigurationError, match="model: Field required"):
        Backend()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_name_models_that_litellm_prices(name: str) -> None:
    provider, model = split_model(PRESETS[name].backend.model)
    known = known_models()
    assert (model in known or f"{provider}/{model}" in known) is (name not in LOCAL)


def test_the_listing_tells_which_keys_are_set_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", CANARY)
    rows = {row.name: row for row in describe()}
    assert list(rows) == list(PRESETS)
    assert rows["deepseek"].key_set
    assert rows["deepseek"].key_variable == "DEEPSEEK_API_KEY"
    assert not rows["claude"].key_set
    assert (rows["rehearsal"].key_variable, rows["rehearsal"].key_set) == (None, True)
    assert CANARY not in repr(rows)


def test_a_named_variable_comes_before_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs-0000")
    monkeypatch.setenv("MY_KEY", "mine-00000")
    assert key_of(Backend(model="gpt-4o", api_key_env="MY_KEY")) == "mine-00000"
    assert key_of(Backend(model="gpt-4o")) == "theirs-0000"
    assert key_of(Backend(model="rehearsal")) is None


def test_a_providers_key_is_not_handed_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs-0000")
    elsewhere = Backend(model="openai/m", base_url="http://h/v1")
    assert key_of(elsewhere) is None
    assert key_of(elsewhere.model_copy(update={"api_key_env": "OPENAI_API_KEY"})) == "theirs-0000"


def test_the_second_variable_serves_where_the_first_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "g-00000000")
    backend = Backend(model="gemini/gemini-3.8-flash")
    assert key_variables(backend) == ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    assert key_of(backend) == "g-00000000"


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o", "openai"),
        ("o4-mini", "openai"),
        ("claude-sonnet-5-5", "anthropic"),
        ("gemini-2.5-pro", "vertex_ai"),
        ("deepseek-chat", "deepseek"),
        ("hosted_vllm/Qwen/Qwen3-8B", "hosted_vllm"),
        ("rehearsal:invalid_json=0.1", "rehearsal"),
        ("something-else", ""),
    ],
)
def test_the_provider_of_a_model_string(model: str, provider: str) -> None:
    assert split_model(model)[0] == provider


def test_the_server_is_the_backends_then_litellms_then_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = Backend(model="hosted_vllm/m")
    assert server_of(vllm.model_copy(update={"base_url": "http://gpu:1/v1"})) == "http://gpu:1/v1"
    assert server_of(vllm) == "http://localhost:8000/v1"
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://gpu:2/v1")
    assert server_of(vllm) is None
    assert server_of(Backend(model="gpt-4o")) is None
    assert server_of(Backend(model="unheard_of/m")) is None
