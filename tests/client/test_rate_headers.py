"""The header Retry-After, as servers write it and as they should not."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.client.http.reply import headers_of, retry_after_in

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20", 20),
        ("0.5", 0.5),
        ("Sat, 21 Nov 2026 12:01:00 GMT", 60),
        ("Sat, 21 Nov 2026 11:01:00 GMT", 0),
        *((text, None) for text in ("", "soon", "-1", "nan", "inf", "1e999", "2026-99-99T00:00:00Z")),
    ],
)
def test_a_wait_is_a_number_or_a_date(text: str, expected: float | None) -> None:
    assert retry_after_in({"retry-after": text}, clock=lambda: NOON) == expected


@pytest.mark.parametrize(("date", "waited"), [("Sat, 21 Nov 2026 13:00:00 GMT", 20), ("no date", 3_620)])
def test_a_date_is_read_by_the_servers_own_clock(date: str, waited: float) -> None:
    headers = {"date": date, "retry-after": "Sat, 21 Nov 2026 13:00:20 GMT"}
    assert retry_after_in(headers, clock=lambda: NOON) == waited


@given(st.text() | st.floats().map(str) | st.integers().map(str))
def test_no_value_of_the_header_does_harm(text: str) -> None:
    wait = retry_after_in({"retry-after": text})
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
