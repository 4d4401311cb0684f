"""Display of a run in progress: its state, its pace and its cost."""

import io
from dataclasses import replace

import pytest
from cli_records import moment
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.cli.display import Display, Pace, status_clauses
from refinesynth.cli.display import cost as cost_text
from refinesynth.cli.display import tokens as token_text
from refinesynth.cli.terminal import SafeConsole
from refinesynth.client.budget.budget import Budget
from refinesynth.outcome import Cost
from refinesynth.synthesis import Progress
from refinesynth.synthesis.progress import Surroundings
from refinesynth.trajectory import Usage

BUSY = moment(
    62,
    31,
    cost_usd=0.5,
    in_flight=16,
    failed=3,
    by_rule={"ValidActions": 12, "EnoughMistakes": 7, "TaskSucceed": 1},
    usage=Usage(requests=812, input_tokens=1_234_567, cached_tokens=246_913, output_tokens=203_000),
)


def console(*, terminal: bool, width: int = 80) -> tuple[SafeConsole, io.StringIO]:
    written = io.StringIO()
    return (
        SafeConsole(
            file=written, force_terminal=terminal, color_system=None, width=width, markup=False, highlight=False
        ),
        written,
    )


def drawn(progress: Progress, now: float | None = None) -> list[str]:
    pace = Pace()
    pace.observe(progress)
    return status_clauses(progress, pace, progress.elapsed if now is None else now)


def test_what_is_around_the_run_is_looked_at_when_it_is_drawn() -> None:
    around = [
        Surroundings(
            paid=Cost(usage=Usage(requests=1, input_tokens=900, output_tokens=100), cost_usd=2.0),
            budget=Budget(usd=4, tokens=2_000_000),
            retries=1,
            troubles=("gpt-4o has been down for 80 s (\x1b[2J); the run waits for it",),
        )
    ]
    progress = replace(moment(10, 5, cost_usd=1.0), surroundings=lambda: around[0])
    lines = drawn(progress)
    assert "900 in, 100 out, 1 request, 1 retry; 1.00k of 2.00M" in lines
    assert "cost 2.00 USD of 4.00 USD, 0.1000 USD each, about 30 of 100 on this budget" in lines
    assert "gpt-4o has been down for 80 s (\\u001b[2J); the run waits for it" in lines
    around[0] = replace(around[0], paid=Cost(cost_usd=3.0), troubles=())
    assert any(line.startswith("cost 3.00 USD of 4.00") for line in drawn(progress))
    assert not any("down" in line for line in drawn(progress))


def test_a_log_line_says_it_too() -> None:
    assert "; ".join(drawn(BUSY)) == (
        "0:31 62/100 accepted; 2.0/s, about 0:19 left; 16 in flight, 3 gave none; refused: 1 script, 20 drafts; "
        "1.23M in (20% cached), 203k out, 812 requests; cost 0.5000 USD, 0.0081 USD each, about 0.8065 USD in all"
    )


def redraws(*, terminal: bool) -> bool:
    screen, written = console(terminal=terminal)
    shown = Display(screen)
    shown.open()
    shown.close()
    return "starting" in written.getvalue()


def test_a_terminal_is_redrawn_and_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redraws(terminal=True)
    assert not redraws(terminal=False)
    monkeypatch.setenv("TERM", "dumb")
    assert not redraws(terminal=True)


def test_the_log_has_no_escape_codes_and_ends_with_the_last_moment() -> None:
    screen, written = console(terminal=False)
    log = Display(screen)
    log.open()
    log.tick()
    assert written.getvalue() == ""
    log.say("it begins\x1b[2J")
    log.update(moment(3, 1))
    log.tick()
    log.update(moment(5, 2))
    log.close()
    log.close()
    lines = written.getvalue().splitlines()
    assert [line.partition(" accepted")[0] for line in lines] == ["it begins\\u001b[2J", "0:01 3/100", "0:02 5/100"]
    assert "\x1b" not in written.getvalue()


def test_the_log_has_a_line_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("refinesynth.cli.display.time.monotonic", lambda: clock)
    screen, written = console(terminal=False)
    log = Display(screen)
    around = Surroundings(paid=Cost(), troubles=("m has been down",))
    for _ in range(360):
        clock += 10.0
        log.update(replace(moment(0, clock, failed=1, in_flight=4), surroundings=lambda: around))
        log.tick()
    log.close()
    first, *others = written.getvalue().splitlines()
    assert len(others) < 50
    assert "m has been down" in first
    assert others[-1].startswith("1:00:00 0/100 accepted; no pace yet; 4 in flight, 1 gave none; refused: ")


def test_a_moment_is_a_line_whatever_servers_say() -> None:
    now = moment(1_200, 5.0, n=32_000, in_flight=16, failed=3)
    assert str(now) == "1,200/32,000 accepted, 16 in flight, 3 gave none"
    around = Surroundings(paid=Cost(), troubles=("it said \x1b[2J\r\nand more",))
    said = str(replace(now, surroundings=lambda: around))
    assert said.endswith("gave none; it said \\u001b[2J\\u000aand more")


# The pace.


def test_only_the_last_minute_counts() -> None:
    pace = Pace()
    pace.observe(moment(1000, 1, n=10_000))
    for second in range(2, 600):
        pace.observe(moment(1000 + second, second, n=10_000))
    assert pace.rate(599) == pytest.approx(1, rel=0.02)


def test_a_resumed_run_does_not_count_what_was_there() -> None:
    pace = Pace()
    pace.observe(moment(90, 0, before=90))
    pace.observe(moment(95, 10, before=90))
    assert pace.rate(10) == pytest.approx(0.5)
    assert pace.remaining(10) == pytest.approx(10)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 30)), max_size=100), st.floats(0, 1000))
def test_neither_rate_nor_time_left_is_ever_negative(steps: list[tuple[int, float]], wait: float) -> None:
    pace, accepted, elapsed = Pace(), 0, 0.0
    for more, seconds in steps:
        accepted, elapsed = accepted + more, elapsed + seconds
        pace.observe(moment(accepted, elapsed))
    assert pace.rate(elapsed + wait) >= 0
    assert (pace.remaining(elapsed + wait) or 0) >= 0


# The bill.


def surroundings(usd: float | None, tokens: int = 0, budget: Budget | None = None) -> Surroundings:
    return Surroundings(paid=Cost(usage=Usage(requests=2, input_tokens=tokens), cost_usd=usd), budget=budget)


@given(st.integers(0, 200), st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.floats(1e-6, 1e9))
def test_any_bill_can_be_written(accepted: int, cost: float | None, paid: float | None, limit: float) -> None:
    progress, now = moment(accepted, 1, cost_usd=cost), surroundings(paid, 10**9, Budget(usd=limit, tokens=limit))
    assert cost_text(progress, now)
    assert token_text(progress, now)
