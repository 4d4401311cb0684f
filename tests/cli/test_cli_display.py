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
from refinesynth.cost import Cost
from refinesynth.synthesis import Progress
from refinesynth.synthesis.progress import LimitingFactor, Surroundings
from refinesynth.trajectory import Usage

BUSY = moment(
    62,
    31,
    cost=0.5,
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


def test_it_says_what_keeps_more_episodes_from_being_in_flight() -> None:
    bound = replace(BUSY, bound=LimitingFactor.RATE)
    assert "16 in flight (bound by a rate limit), 3 gave none" in drawn(bound)
    assert not any("bound by" in line for line in drawn(replace(bound, in_flight=0)))


def test_a_run_that_is_done_promises_nothing_more() -> None:
    lines = drawn(moment(100, 50, cost=1.0))
    assert lines[:2] == ["0:50 100/100 accepted", "2.0/s"]
    assert "cost 1.00 USD, 0.0100 USD each" in lines


def test_more_than_needed_is_said_and_not_counted_as_if_it_were_wrong() -> None:
    lines = drawn(moment(61, 50, n=60, in_flight=2))
    assert lines[0] == "0:50 60/60 accepted"
    assert "2 in flight, 0 gave none, 1 kept for later" in lines


def test_what_is_around_the_run_is_looked_at_when_it_is_drawn() -> None:
    around = [
        Surroundings(
            paid=Cost(usage=Usage(requests=1, input_tokens=900, output_tokens=100), cost_usd=2.0),
            budget=Budget(usd=4, tokens=2_000_000),
            retries=1,
            troubles=("gpt-4o has been down for 80 s (\x1b[2J); the run waits for it",),
        )
    ]
    progress = replace(moment(10, 5, cost=1.0), surroundings=lambda: around[0])
    lines = drawn(progress)
    assert "900 in, 100 out, 1 request, 1 retry; 1.00k of 2.00M" in lines
    assert "cost 2.00 USD of 4.00 USD, 0.1000 USD each, about 30 of 100 on this budget" in lines
    assert "gpt-4o has been down for 80 s (\\u001b[2J); the run waits for it" in lines
    around[0] = replace(around[0], paid=Cost(cost_usd=3.0), troubles=())
    assert any(line.startswith("cost 3.00 USD of 4.00") for line in drawn(progress))
    assert not any("down" in line for line in drawn(progress))


def test_before_the_first_there_is_no_forecast() -> None:
    lines = drawn(moment(0, 5, cost=None, in_flight=4, bad_personas=1))
    assert {"no pace yet", "cost unknown", "1 row skipped: no persona in them"} <= {*lines}


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


def test_the_last_moment_stays() -> None:
    screen, written = console(terminal=True)
    shown = Display(screen)
    shown.open()
    shown.say("it begins")
    shown.update(BUSY)
    shown.tick()
    shown.close()
    assert "starting" in written.getvalue()
    assert "62/100 accepted" in written.getvalue().rpartition("starting")[2]


def test_a_moment_is_a_line_whatever_servers_say() -> None:
    now = moment(1_200, 5.0, n=32_000, in_flight=16, failed=3)
    assert str(now) == "1,200/32,000 accepted, 16 in flight, 3 gave none"
    around = Surroundings(paid=Cost(), troubles=("it said \x1b[2J\r\nand more",))
    said = str(replace(now, surroundings=lambda: around))
    assert said.endswith("gave none; it said \\u001b[2J\\u000aand more")


NEVER = "no draft was accepted in 4 attempts; the last: Mine: Never."


def test_why_episodes_gave_none_is_said() -> None:
    progress = replace(moment(0, 5, failed=3), commonest_reason=(NEVER, 2), last_reason="the model has no words")
    said = drawn(progress)
    assert f"2 of 3 episodes without a trajectory: {NEVER}" in said
    assert "the last: the model has no words" in said


def test_a_last_reason_that_is_the_most_frequent_is_said_once() -> None:
    progress = replace(moment(0, 5, failed=3), commonest_reason=(NEVER, 3), last_reason=NEVER)
    assert sum(NEVER in line for line in drawn(progress)) == 1


def test_what_waits_for_an_earlier_episode_is_not_accepted_yet() -> None:
    progress = replace(moment(0, 5, n=200), kept=4)
    for said in ("; ".join(drawn(progress)), str(progress)):
        assert "0/200" in said
        assert "4 kept for later" in said


# The pace.


def test_nothing_seen_promises_nothing() -> None:
    pace = Pace()
    assert pace.rate(5) == 0
    assert pace.remaining(5) is None


def test_a_steady_run() -> None:
    pace = Pace()
    for second in range(11):
        pace.observe(moment(2 * second, second))
    assert pace.rate(10) == pytest.approx(2)
    assert pace.remaining(10) == pytest.approx(40)


def test_a_stall_lowers_the_rate() -> None:
    pace = Pace()
    pace.observe(moment(20, 10))
    assert pace.rate(40) == pytest.approx(0.5)


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


def test_the_forecast_is_what_was_paid_and_the_missing_ones_at_the_price_of_those_so_far() -> None:
    assert (
        cost_text(moment(25, 10, cost=0.5), surroundings(0.7)) == "0.7000 USD, 0.0200 USD each, about 2.20 USD in all"
    )


@pytest.mark.parametrize(
    ("progress", "paid", "text"),
    [
        (moment(25, 10, cost=None), None, "unknown"),
        (moment(25, 10, cost=0.0), 0.0, "0.00 USD"),
        (moment(0, 10, cost=0.3), 0.3, "0.3000 USD"),
    ],
)
def test_no_forecast_without_a_price_or_a_trajectory(progress: Progress, paid: float | None, text: str) -> None:
    assert cost_text(progress, surroundings(paid)) == text


def test_a_budget_that_suffices_changes_nothing_and_one_that_does_not_is_said() -> None:
    progress = moment(10, 10, cost=1.0)
    assert cost_text(progress, surroundings(1.0, budget=Budget(usd=20))).endswith(
        "of 20.00 USD, 0.1000 USD each, about 10.00 USD in all"
    )
    assert cost_text(progress, surroundings(1.0, budget=Budget(usd=5))).endswith("about 50 of 100 on this budget")
    progress = replace(progress, usage=Usage(input_tokens=1_000))
    assert token_text(progress, surroundings(1.0, 2_000, Budget(tokens=4_000))).endswith(
        "2 requests; 2.00k of 4.00k, about 30 of 100 on this budget"
    )


@given(st.integers(0, 200), st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.floats(1e-6, 1e9))
def test_any_bill_can_be_written(accepted: int, cost: float | None, paid: float | None, limit: float) -> None:
    progress, now = moment(accepted, 1, cost=cost), surroundings(paid, 10**9, Budget(usd=limit, tokens=limit))
    assert cost_text(progress, now)
    assert token_text(progress, now)
