"""Headers about rate limits, as servers write them and as they should not."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.client.limiter.rate_limits import Quota, RateHeaders, headers_of, read_rate_headers, seconds

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def read(**headers: str) -> RateHeaders:
    return read_rate_headers({name.replace("_", "-"): value for name, value in headers.items()}, clock=lambda: NOON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20", 20),
        ("0.5", 0.5),
        ("20ms", 0.02),
        ("1s", 1),
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("1d", 86_400),
        ("120µs", 0.00012),
        ("2026-11-21T12:00:30Z", 30),
        ("2026-11-21T12:00:30.500+00:00", 30.5),
        ("2026-11-21T11:00:00Z", 0),
        ("Sat, 21 Nov 2026 12:01:00 GMT", 60),
        (str(int(NOON.timestamp()) + 90), 90),
        (str((int(NOON.timestamp()) + 90) * 1000), 90),
        *((text, None) for text in ("", "soon", "-1", "nan", "inf", "1s?", "5 m", "1e999", "2026-99-99T00:00:00Z")),
    ],
)
def test_a_wait_is_read_in_every_spelling(text: str, expected: float | None) -> None:
    assert seconds(text, clock=lambda: NOON) == (None if expected is None else pytest.approx(expected))


def test_openais_headers() -> None:
    told = read(
        x_ratelimit_limit_requests="60",
        x_ratelimit_remaining_requests="59",
        x_ratelimit_reset_requests="1s",
        x_ratelimit_remaining_tokens="149984",
        x_ratelimit_reset_tokens="6m0s",
    )
    assert told == RateHeaders(requests=Quota(59, 1), tokens=Quota(149_984, 360))


def test_anthropics_headers_give_the_scarcest_kind_of_tokens() -> None:
    told = read(
        anthropic_ratelimit_requests_remaining="49",
        anthropic_ratelimit_requests_reset="2026-11-21T12:00:01Z",
        anthropic_ratelimit_tokens_remaining="90000",
        anthropic_ratelimit_tokens_reset="2026-11-21T12:00:30Z",
        anthropic_ratelimit_output_tokens_remaining="1000",
        anthropic_ratelimit_output_tokens_reset="2026-11-21T12:00:30Z",
        retry_after="12",
    )
    assert told == RateHeaders(retry_after=12, requests=Quota(49, 1), tokens=Quota(1_000, 30))


@pytest.mark.parametrize(("date", "ahead"), [("Sat, 21 Nov 2026 13:00:00 GMT", 3_600), ("no date", 0)])
@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S GMT", "%Y-%m-%dT%H:%M:%SZ", "%s"])
def test_points_in_time_are_read_by_the_servers_own_clock(date: str, ahead: int, form: str) -> None:
    moment = NOON + timedelta(seconds=ahead + 20)
    text = moment.strftime(form) if form != "%s" else str(int(moment.timestamp()))
    told = read(
        date=date,
        retry_after=text,
        anthropic_ratelimit_requests_remaining="49",
        anthropic_ratelimit_requests_reset=text,
    )
    assert told == RateHeaders(retry_after=20, requests=Quota(49, 20))


def test_retry_after_in_milliseconds_is_the_finer_word() -> None:
    assert read(retry_after="2", retry_after_ms="1250").retry_after == 1.25


@pytest.mark.parametrize("headers", [None, {}, {"content-type": "application/json"}])
def test_headers_that_say_nothing_say_nothing(headers: dict[str, str] | None) -> None:
    assert read_rate_headers(headers) == RateHeaders()


@given(
    st.dictionaries(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]
        ),
        st.text()
        | st.floats().map(str)
        | st.integers().map(str)
        | st.from_regex(r"[0-9]{1,400}[smhd]", fullmatch=True),
    )
)
def test_no_value_of_a_header_does_harm(headers: dict[str, str]) -> None:
    told = read_rate_headers(headers)
    for wait in (told.retry_after, told.requests and told.requests.reset, told.requests and told.requests.remaining):
        assert wait is None or 0 <= wait < float("inf")


class Carrying:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    "source",
    [
        Carrying(headers={"Retry-After": "7"}),
        Carrying(litellm_response_headers={"retry-after": 7}),
        Carrying(response=Carrying(headers={"Retry-After": "7"})),
        Carrying(_hidden_params={"additional_headers": {"llm_provider-retry-after": "7"}}),
    ],
)
def test_headers_are_found_wherever_clients_keep_them(source: Carrying) -> None:
    assert headers_of(source) == {"retry-after": "7"}
