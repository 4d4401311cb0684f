"""A run that can come to nothing stops early, and where it stops depends on what is committed alone."""

from contextlib import suppress
from dataclasses import replace
from math import comb, inf
from pathlib import Path

import anyio
import orjson
import pytest
from fates import Fate, Fates, Interruption, outcome, people, run
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, kept, scratch

from refinesynth.client.budget.budget import Budget
from refinesynth.cost import Cost
from refinesynth.errors import InputError
from refinesynth.personas import open_personas
from refinesynth.run import EpisodeLine, RunFolder, Totals
from refinesynth.synthesis import SynthesisResult, stream, synthesize
from refinesynth.synthesis.patience import Patience, Yield, chance_of_so_few
from refinesynth.synthesis.pool import Pool
from refinesynth.trajectory import Persona, Usage

NOTHING = "rehearsal:no_success=1.0"
FATES = st.lists(
    st.builds(
        Fate,
        steps=st.integers(0, 8),
        accepted=st.sampled_from([False, False, False, True]),
        lost=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=40,
)


def stops_at(fates: list[Fate], patience: Patience, *, count: int) -> int:
    """How many episodes one after the other would commit."""
    seen = Yield()
    for index in range(count):
        if patience.runs_out(seen) is not None or seen.accepted >= patience.n:
            return index
        fate = fates[index % len(fates)]
        seen = seen.and_of(EpisodeLine.of(outcome(index, Persona(text="?"), fate)))
    return count


async def played(
    path: Path, fates: list[Fate], patience: Patience, *, concurrency: int = 1, cancel_at: int | None = None
) -> Pool:
    scope = anyio.CancelScope()
    with scope:
        return await run(
            path,
            Fates(fates),
            n=patience.n,
            concurrency=concurrency,
            count=60,
            patience=patience,
            on_progress=Interruption(scope, at=cancel_at or -1),
        )
    raise TimeoutError


@FEWER
@given(
    fates=FATES,
    patience=st.builds(
        Patience, n=st.integers(1, 40), episodes=st.integers(1, 12), personas=st.sampled_from([None, 60])
    ),
    concurrency=st.integers(2, 24),
    cancel_at=st.integers(1, 60),
)
async def test_where_it_stops_depends_neither_on_the_concurrency_nor_on_interruptions(
    fates: list[Fate], patience: Patience, concurrency: int, cancel_at: int
) -> None:
    with scratch() as home:
        one, many, parts = Path(home, "one"), Path(home, "many"), Path(home, "parts")
        pool = await played(one, fates, patience)
        again = await played(many, fates, patience, concurrency=concurrency)
        with suppress(TimeoutError):
            await played(parts, fates, patience, concurrency=concurrency, cancel_at=cancel_at)
        await played(parts, fates, patience, concurrency=concurrency)
        assert pool.stopped_early == again.stopped_early
        assert contents(one) == contents(many) == contents(parts)
        assert RunFolder.open(one).totals().episodes == stops_at(fates, patience, count=60)


@FEWER
@given(fates=FATES, episodes=st.integers(1, 12), concurrency=st.integers(1, 24))
async def test_more_patience_goes_on_as_if_it_had_never_stopped(
    fates: list[Fate], episodes: int, concurrency: int
) -> None:
    endless = Patience(n=20, episodes=0)
    with scratch() as home:
        whole, parts = Path(home, "whole"), Path(home, "parts")
        await played(whole, fates, endless)
        await played(parts, fates, Patience(n=20, episodes=episodes, personas=60), concurrency=concurrency)
        before = kept(parts)
        stage = Fates(fates)
        await run(parts, stage, n=20, count=60, patience=endless)
        assert before.keys().isdisjoint(stage.finished), "an episode was played twice"
        assert contents(parts) == contents(whole)


async def test_the_same_again_after_a_stop_plays_nothing_and_says_the_same(tmp_path: Path) -> None:
    patience, stage = Patience(n=5, episodes=4), Fates([Fate(accepted=False, refusals=("TaskSucceed",))])
    pool = await played(tmp_path, stage.fates, patience)
    assert pool.stopped_early == "nothing_accepted"
    again = await run(tmp_path, stage, n=5, patience=patience)
    assert again.stopped_early == "nothing_accepted"
    assert stage.played == []
    events = [orjson.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    told = [event for event in events if event["event"] == "stopped_early"]
    assert [(event["why"], event["episodes"], event["rule"]) for event in told] == [
        ("nothing_accepted", 4, "TaskSucceed")
    ] * 2
    assert events[-1]["why"] == "nothing_accepted"


async def test_one_that_is_accepted_out_of_turn_is_kept_for_later(tmp_path: Path) -> None:
    # The fifth is finished before the fourth of those that are refused; those behind it are still played at the end.
    fates = [*[Fate(accepted=False)] * 3, Fate(accepted=False, steps=30), Fate(), *[Fate(steps=10**9)] * 55]
    await played(tmp_path, fates, Patience(n=5, episodes=4), concurrency=5)
    assert [line.index for line in RunFolder.open(tmp_path).waiting_lines()] == [4]
    await run(tmp_path, Fates([Fate()]), n=1, count=60)
    assert [found.id for found in RunFolder.open(tmp_path).trajectories()] == ["000004"]


@given(seen=st.integers(0, 12), of=st.integers(1, 12), hits=st.integers(0, 30), more=st.integers(0, 30))
def test_the_chance_is_that_of_the_hypergeometric_distribution(seen: int, of: int, hits: int, more: int) -> None:
    among = of + more
    if hits > among or seen > of:
        return
    exact = sum(comb(hits, at) * comb(among - hits, of - at) for at in range(seen + 1)) / comb(among, of)
    found = chance_of_so_few(seen, of=of, hits=hits, among=among)
    assert found == pytest.approx(1.0 if seen >= of * hits / among else exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("among", "hits"), [(10**9, 10**8), (10**12, 10**11), (10**18, 10**17)])
def test_the_chance_of_few_among_very_many_is_that_of_draws_with_replacement(among: int, hits: int) -> None:
    binomial = sum(comb(500, at) * 0.1**at * 0.9 ** (500 - at) for at in range(21))
    assert chance_of_so_few(20, of=500, hits=hits, among=among) == pytest.approx(binomial, rel=1e-3)


@given(
    counts=st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 100)).filter(any),
    asked=st.builds(
        Patience,
        n=st.integers(1, 3_000),
        personas=st.none() | st.integers(1, 5_000),
        episodes=st.integers(0, 100),
    ),
)
def test_it_stops_only_where_it_said_that_it_would(counts: tuple[int, int, int], asked: Patience) -> None:
    refused, lost, accepted = counts
    episodes, judged = sum(counts), refused + accepted
    seen = Yield(episodes=episodes, lost=lost, fruitful=accepted, accepted=accepted)
    n, personas, patience, why = asked.n, asked.personas, asked.episodes, asked.runs_out(seen)
    assert why is None or (patience > 0 and accepted < n)
    assert (why == "nothing_accepted") == (
        patience > 0 and accepted == 0 and (judged >= patience or episodes >= 4 * patience)
    )
    if why == "unreachable":
        assert personas is not None
        assert judged >= patience
        assert n < personas, "whoever asks for all gets all there are"
        assert personas >= 2 * episodes, "a run that is half through goes on"
        assert asked.expected(seen) < n
        # With one more of all that are left to come, it would not stop any later.
        assert replace(asked, n=n + 1).runs_out(seen) == "unreachable" or n + 1 >= personas
    assert replace(asked, episodes=0).runs_out(seen) is None


@pytest.mark.parametrize(
    ("seen", "asked", "why"),
    [
        # 6 % of 300 are 18.
        (Yield(episodes=50, fruitful=3, accepted=3), Patience(n=100, personas=300), "unreachable"),
        # Nearly all of them will come.
        (Yield(episodes=83, fruitful=81, accepted=81), Patience(n=300, personas=301), None),
        (Yield(episodes=83, fruitful=60, accepted=60), Patience(n=300, personas=301), "unreachable"),
        (Yield(episodes=50, fruitful=3, accepted=3), Patience(n=18, personas=300), None),
        (Yield(episodes=50, fruitful=3, accepted=3), Patience(n=300, personas=300), None),
        (Yield(episodes=50, fruitful=3, accepted=3), Patience(n=100), None),
        (Yield(episodes=31, fruitful=1, accepted=1), Patience(n=100, personas=300), None),
        # Those that their backend ended are no evidence.
        (Yield(episodes=50, lost=20, fruitful=3, accepted=3), Patience(n=100, personas=300), None),
        (Yield(episodes=50, lost=18, fruitful=3, accepted=3), Patience(n=200, personas=300), "unreachable"),
        (Yield(episodes=40, lost=40), Patience(n=9), None),
        (Yield(episodes=128, lost=128), Patience(n=9), "nothing_accepted"),
        # One that goes well gives four.
        (Yield(episodes=50, fruitful=3, accepted=12), Patience(n=70, personas=300, per_episode=4), None),
        (Yield(episodes=50, fruitful=3, accepted=12), Patience(n=400, personas=300, per_episode=4), "unreachable"),
    ],
)
def test_the_yield_is_held_against_the_personas(seen: Yield, asked: Patience, why: str | None) -> None:
    assert asked.runs_out(seen) == why


@pytest.mark.parametrize(
    ("budget", "n", "why"),
    [
        # 50 episodes cost 5 USD and 50,000 tokens, and gave 3.
        (Budget(usd=50), 200, "unreachable"),
        (Budget(tokens=500_000), 200, "unreachable"),
        (Budget(usd=5_000), 200, None),
        (Budget(usd=50), 500, None),
        (Budget(usd=50), 30, None),
        (Budget(usd=9), 20, None),
        (Budget(usd=5_000, tokens=500_000), 200, "unreachable"),
    ],
)
def test_the_yield_is_held_against_the_budget(budget: Budget, n: int, why: str | None) -> None:
    spent = Cost(usage=Usage(input_tokens=50_000), cost_usd=5.0)
    assert Patience(n=n, budget=budget).runs_out(Yield(episodes=50, fruitful=3, accepted=3, spent=spent)) == why


def test_a_cost_that_is_unknown_or_nothing_bounds_nothing() -> None:
    for cost in (None, 0.0):
        seen = Yield(episodes=50, fruitful=3, accepted=3, spent=Cost(cost_usd=cost))
        assert Patience(n=100, budget=Budget(usd=1)).remaining(seen) == inf


def test_sums_of_older_runs_know_of_none_that_was_lost() -> None:
    old = Totals().model_dump(mode="json", exclude={"lost"})
    assert Totals.model_validate(old).lost == 0


async def test_a_run_in_which_nothing_is_accepted_says_so_and_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    asked = dict(n=9, play="narrated", output=tmp_path / "run", backend=NOTHING)  # noqa: C408
    result = await synthesize(patience=3, **asked)  # pyright: ignore[reportArgumentType]
    assert (result.stopped_early, result.episodes, result.reached) == ("nothing_accepted", 3, False)
    assert result.ended == "none of the first 3 episodes gave one, so the run stopped early (patience 3)"
    assert result.shortfall is not None
    assert result.shortfall.endswith("most refusals by TaskSucceed.")
    paid = result.usage
    again = await synthesize(patience=3, **asked)  # pyright: ignore[reportArgumentType]
    assert (again.ended, again.usage) == (result.ended, paid)
    more = await synthesize(patience=5, **asked)  # pyright: ignore[reportArgumentType]
    assert more.episodes == 5
    assert more.config.patience == 5
    assert SynthesisResult.open(tmp_path / "run").stopped_early is None


async def test_so_does_a_stream(tmp_path: Path) -> None:
    async with stream(None, 9, NOTHING, play="narrated", patience=2, output=tmp_path / "run") as trajectories:
        assert [one.id async for one in trajectories] == []
    assert trajectories.result().stopped_early == "nothing_accepted"


@pytest.mark.usefixtures("local_ray")
async def test_several_workers_stop_where_one_does(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        await synthesize(None, 9, NOTHING, play="narrated", patience=3, workers=workers, output=tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("patience", [-1, True, 1.5, "3"])
async def test_patience_is_a_whole_number(patience: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"patience is .*; expected a whole number, 0 or more"):
        await synthesize(None, 1, patience=patience, output=tmp_path / "run")  # pyright: ignore[reportArgumentType]


async def test_how_many_personas_there_are_at_most(tmp_path: Path) -> None:
    crowd = people(7)
    for source in (crowd, tuple(crowd), set(crowd)):
        assert await open_personas(source).at_most() == 7
    assert await open_personas(Persona(text="A smith")).at_most() == 1
    assert await open_personas(iter(crowd)).at_most() is None
    lines, table = tmp_path / "people.txt", tmp_path / "people.csv"
    lines.write_text("\n\n".join(crowd))
    table.write_text("persona,age\n" + "".join(f'"{each}\nof two lines",4\n' for each in crowd[:3]))
    assert await open_personas(lines).at_most() == 7
    at_most = await open_personas(table).at_most()
    assert at_most is not None
    assert at_most >= 3
