"""What a completion costs: one's own prices first, then litellm's map, read without litellm and yet to the same
cent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.usage import RequestUsage

from refinesynth.backends import Backend
from refinesynth.client import litellm_sdk
from refinesynth.client.budget.price_table import entry_of, free, listed_rates, price_of, unknown

LISTED = (
    "gpt-4o", "gpt-4o-mini", "o3", "gpt-5", "deepseek/deepseek-flash", "deepseek/deepseek-v4-pro",
    "deepseek/deepseek-chat", "anthropic/claude-sonnet-5-5", "claude-sonnet-4-5", "gemini/gemini-2.5-pro",
    "gemini/gemini-3.8-flash", "dashscope/qwen3.7-plus", "dashscope/qwen3-coder-plus",
    "mistral/mistral-large-latest", "xai/grok-4", "groq/llama-3.3-70b-versatile", "moonshot/kimi-k2.5",
    "together_ai/deepseek-ai/DeepSeek-V3", "openrouter/openai/gpt-4o", "bedrock/amazon.nova-pro-v1:0",
    "azure/gpt-4o", "cohere_chat/command-r", "ollama_chat/llama3",
)  # fmt: skip
"""Flat prices, several by the length of the prompt or by the hour, prices for writing to a cache, several spellings of
a provider."""


@st.composite
def usages(draw: st.DrawFn) -> RequestUsage:
    prompt = draw(st.integers(1, 32_000))
    cached = draw(st.integers(0, prompt))
    written = draw(st.integers(0, prompt - cached))
    return RequestUsage(
        input_tokens=prompt,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=draw(st.integers(0, 100_000)),
    )


def by_litellm(model: str, usage: RequestUsage) -> float | None:
    try:
        prompt, answer = litellm_sdk.litellm().cost_per_token(
            model=model,
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cache_read_tokens,
            cache_creation_input_tokens=usage.cache_write_tokens,
        )
    except Exception:  # noqa: BLE001 - it names the same lack in several ways
        return None
    return float(prompt) + float(answer)


@pytest.mark.process
@pytest.mark.parametrize("model", LISTED)
@given(usage=usages())
def test_a_short_prompt_costs_what_litellm_says(model: str, usage: RequestUsage) -> None:
    rates, price = listed_rates(model), by_litellm(model, usage)
    if rates is None:
        # Not in this version's map: then litellm knows nothing either.
        assert price is None
    elif "off_peak_pricing" in litellm_sdk.litellm().model_cost.get(model, {}):
        # What it says depends on the hour.
        assert rates(usage) >= (price or 0) * (1 - 1e-9)
    else:
        assert rates(usage) == pytest.approx(price, rel=1e-9, abs=1e-15)


def test_most_of_the_sample_is_listed() -> None:
    assert sum(listed_rates(model) is not None for model in LISTED) > 15


@given(usage=usages(), prices=st.tuples(*[st.none() | st.floats(0, 100)] * 3))
def test_each_of_ones_own_prices_takes_the_place_of_the_listed_one(
    usage: RequestUsage, prices: tuple[float | None, float | None, float | None]
) -> None:
    prompt, cached, output = prices
    own = Backend(model="gpt-4o", input_price=prompt, cached_price=cached, output_price=output)
    usage.cache_write_tokens = 0
    fresh = usage.input_tokens - usage.cache_read_tokens
    at = (2.5 if prompt is None else prompt, 10.0 if output is None else output)
    # Whoever prices the prompt prices all of it.
    cache = cached if cached is not None else 1.25 if prompt is None else prompt
    expected = (fresh * at[0] + usage.cache_read_tokens * cache + usage.output_tokens * at[1]) / 1e6
    assert price_of(own)(usage) == pytest.approx(expected)


def test_thoughts_and_service_tiers_have_their_listed_prices() -> None:
    usage = RequestUsage(input_tokens=2_000, output_tokens=3_000, output_reasoning_tokens=2_500)
    qwen = Backend(model="dashscope/qwen-plus-latest")
    assert price_of(qwen)(usage) == pytest.approx((2_000 * 0.4 + 500 * 1.2 + 2_500 * 4) / 1e6)
    assert price_of(qwen.model_copy(update={"output_price": 1.0}))(usage) == pytest.approx((800 + 3_000) / 1e6)
    entry = entry_of("gpt-5") or {}
    for tier in ("priority", "flex"):
        expected = 2_000 * entry[f"input_cost_per_token_{tier}"] + 3_000 * entry[f"output_cost_per_token_{tier}"]
        for extra in ({"service_tier": tier}, {"extra_body": {"service_tier": tier}}):
            tiered = Backend.model_validate({"model": "gpt-5", "extra": extra})
            assert price_of(tiered)(usage) == pytest.approx(expected)
    assert price_of(Backend(model="gpt-5", extra={"service_tier": "default"})) == price_of(Backend(model="gpt-5"))


def test_a_server_of_ones_own_has_ones_own_prices_or_none() -> None:
    backend = Backend(model="hosted_vllm/mine", base_url="http://127.0.0.1:8000/v1")
    usage = RequestUsage(input_tokens=1_000_000, cache_read_tokens=500_000, output_tokens=1_000_000)
    assert price_of(backend) is unknown
    assert price_of(backend.model_copy(update={"input_price": 1.0})) is unknown
    priced = backend.model_copy(update={"input_price": 1.0, "output_price": 3.0})
    assert price_of(priced)(usage) == pytest.approx(4.0)
    assert price_of(priced.model_copy(update={"cached_price": 0.1}))(usage) == pytest.approx(3.55)


def test_what_plays_itself_is_free_and_what_is_injected_has_no_list() -> None:
    usage = RequestUsage(input_tokens=10**6, output_tokens=10**6)
    for model in ("rehearsal", "rehearsal:mistake=0.5"):
        assert price_of(Backend(model=model)) is free
    assert free(usage) == 0.0
    assert price_of(Backend(model="gpt-4o"), listings=False) is unknown
    assert price_of(Backend(model="gpt-4o", input_price=1, output_price=1), listings=False)(usage) == pytest.approx(2)


def test_a_model_that_nobody_lists_or_that_is_billed_by_more_than_tokens_has_no_price() -> None:
    for model in ("nobody/knows", "gpt-9000", "perplexity/sonar"):
        assert price_of(Backend(model=model)) is unknown


@pytest.mark.parametrize(
    ("written", "listed_as"),
    [
        ("ft:gpt-4o-mini-2024-07-18:org:name:id", "ft:gpt-4o-mini-2024-07-18"),
        ("openai/ft:gpt-4o-mini-2024-07-18:org:name:id", "ft:gpt-4o-mini-2024-07-18"),
        (
            "bedrock/converse/anthropic.claude-3-5-sonnet-20240620-v1:0",
            "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
        ),
        ("anthropic/Claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ],
)
def test_a_model_has_the_price_of_the_one_that_it_is(written: str, listed_as: str) -> None:
    assert listed_rates(written) is not None
    assert listed_rates(written) == listed_rates(listed_as)
