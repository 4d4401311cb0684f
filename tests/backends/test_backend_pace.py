"""Rate limits: a turn each, in tokens and in requests."""

import anyio

from refinesynth.backends.pace import Pace


async def turns(pace: Pace, *, tokens: float = 0.0, most: int = 5) -> int:
    """How many turns come without waiting."""
    taken = 0
    with anyio.move_on_after(0.05):
        for _ in range(most):
            await pace.admit(tokens)
            taken += 1
    return taken


async def test_without_limits_every_turn_comes_at_once() -> None:
    assert await turns(Pace(requests_per_minute=None, tokens_per_minute=None)) == 5


async def test_requests_are_spaced_and_never_come_in_bursts() -> None:
    assert await turns(Pace(requests_per_minute=1, tokens_per_minute=None)) == 1


async def test_tokens_run_out_and_requests_wait_for_them() -> None:
    # 6 seconds' worth are 10,000 tokens; the first answers are taken to have 500.
    assert await turns(Pace(requests_per_minute=None, tokens_per_minute=100_000), tokens=4_000) == 2


async def test_a_request_larger_than_the_window_still_gets_its_turn_in_time() -> None:
    pace = Pace(requests_per_minute=None, tokens_per_minute=60_000_000)
    with anyio.fail_after(20):
        assert await pace.admit(6_100_000) == 6_100_500


async def test_what_was_charged_too_much_is_given_back() -> None:
    pace = Pace(requests_per_minute=None, tokens_per_minute=100_000)
    charged = await pace.admit(9_000)
    pace.settle(charged, billed=500, answer=100)
    pace.settle(0, billed=-10_000, answer=100)
    assert await turns(pace, tokens=4_000, most=4) == 4


async def test_what_was_charged_too_little_is_owed() -> None:
    pace = Pace(requests_per_minute=None, tokens_per_minute=100_000)
    pace.settle(await pace.admit(0), billed=50_000, answer=100)
    assert await turns(pace, most=1) == 0


def test_a_pace_serves_one_event_loop_after_another() -> None:
    pace = Pace(requests_per_minute=1, tokens_per_minute=60_000)

    async def first_turn() -> int:
        return await turns(pace, most=1)

    assert anyio.run(first_turn) == 1
    assert anyio.run(first_turn) == 1
