"""Numbers as people read them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.text.formatting import compact, dollars, duration, in_bytes, per_time

TABLE: tuple[tuple[Callable[[float], str], dict[float, str]], ...] = (
    (
        compact,
        {
            0: "0",
            950: "950",
            999.4: "999",
            999.6: "1.00k",
            1_234: "1.23k",
            12_345: "12.3k",
            123_456: "123k",
            999_900: "1.00M",
            4_560_000: "4.56M",
            7.2e9: "7.20G",
        },
    ),
    (duration, {0: "0:00", 7.9: "0:07", 60: "1:00", 3_599: "59:59", 11_100: "3:05:00", 187_200: "2 d 04:00"}),
    (per_time, {2.5: "2.5/s", 0.2: "12.0/min", 0.001: "3.6/h", 0: "0.0/h"}),
    (dollars, {0: "0.00 USD", 0.00123: "0.0012 USD", 1234.567: "1,234.57 USD", 0.000512: "0.00051 USD"}),
    # Never none of a large unit.
    (
        in_bytes,
        {0: "0 bytes", 1_023: "1023 bytes", 1_024: "1 KiB", 300_000: "293 KiB", 2**20: "1 MiB", 2**30: "1.0 GiB"},
    ),
)


def test_numbers_as_text() -> None:
    wrong = [
        (written.__name__, number, written(number))
        for written, rows in TABLE
        for number, text in rows.items()
        if written(number) != text
    ]
    assert not wrong


@given(st.integers(0, 10**12))
def test_compact_is_right_to_three_digits(number: int) -> None:
    text = compact(number)
    size = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)
    assert float(text.rstrip("kMG")) * size == pytest.approx(number, rel=0.006, abs=0.5)
