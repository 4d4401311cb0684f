"""The Mistakes policy: when it asks, for what, and what it never does."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from samples import dm, player

from refinesynth.settings.mistakes import MAX_MISTAKES, MistakeRequest, Mistakes, at_least, natural, prompted, spread
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.trajectory.turns import is_lopsided, mistakes_by_tenth, summed

P, L, G = MistakeKind.PARAMETER, MistakeKind.PLACE, MistakeKind.LOGIC

kinds = st.lists(st.sampled_from([None, None, P, L, G]), max_size=12)
policies = st.one_of(
    st.just(natural()),
    st.integers(0, 4).map(at_least),
    st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda turns: prompted(*turns)),
)


def played(verdicts: list[MistakeKind | None]) -> list[PlayerTurn | DungeonMasterTurn]:
    exchanges = ((player(f"act {at}"), dm(f"seen {at}", kind or "")) for at, kind in enumerate(verdicts))
    return [turn for exchange in exchanges for turn in exchange]


def asked_in_play(policy: Mistakes, *, episode: int, turns: int, obeys: bool = True) -> list[MistakeKind | None]:
    """What a policy asks for, turn by turn, of a player that makes no mistakes but those it is asked for."""
    verdicts: list[MistakeKind | None] = []
    asked: list[MistakeKind | None] = []
    for _ in range(turns):
        wanted = policy.ask(played(verdicts), episode=episode)
        kind = wanted.kind if wanted else None
        asked.append(kind)
        verdicts.append(kind if obeys else None)
    return asked


@given(policies, kinds, st.integers(0, 50), st.integers(1, 4))
def test_no_policy_asks_first_or_while_a_mistake_is_unrepaired(
    policy: Mistakes, verdicts: list[MistakeKind | None], episode: int, attempt: int
) -> None:
    asked = policy.ask(played(verdicts), episode=episode, attempt=attempt)
    if not verdicts or verdicts[-1] is not None:
        assert asked is None
    assert asked == policy.ask(played(verdicts), episode=episode, attempt=attempt)


@given(kinds, st.integers(0, 50), st.integers(1, 4), st.integers(0, 4))
def test_at_least_asks_for_no_more_than_its_minimum_natural_mistakes_counted(
    verdicts: list[MistakeKind | None], episode: int, attempt: int, minimum: int
) -> None:
    asked = at_least(minimum).ask(played(verdicts), episode=episode, attempt=attempt)
    if sum(kind is not None for kind in verdicts) >= minimum:
        assert asked is None


@given(st.integers(0, 200), st.integers(1, 3))
def test_at_least_reaches_its_minimum_when_the_player_obeys(episode: int, minimum: int) -> None:
    asked = asked_in_play(at_least(minimum), episode=episode, turns=1 + 3 * minimum)
    made = [kind for kind in asked if kind is not None]
    assert len(made) == minimum
    assert len(set(made)) == minimum, "the kinds differ as long as there are any left"


def test_prompted_asks_on_its_turns_and_puts_off_those_on_which_a_mistake_is_repaired() -> None:
    assert [bool(kind) for kind in asked_in_play(prompted(1, 4), episode=0, turns=7)] == [
        False, True, False, False, True, False, False,
    ]  # fmt: skip
    assert [bool(kind) for kind in asked_in_play(prompted(0, 2), episode=0, turns=6)] == [
        False, True, False, True, False, False,
    ]  # fmt: skip
    assert prompted() == prompted(1, 4)


def test_kinds_are_balanced_over_a_run() -> None:
    for policy in (at_least(1), at_least(2), prompted(2, 5)):
        counts = Counter(
            kind for episode in range(60) for kind in asked_in_play(policy, episode=episode, turns=12) if kind
        )
        assert len(set(counts.values())) == 1, (policy, counts)
        assert set(counts) == set(MistakeKind)


def test_a_natural_mistake_of_one_kind_makes_the_others_come_first() -> None:
    for episode in range(6):
        assert at_least(3).ask(played([None, P, None, None]), episode=episode) in {MistakeRequest(L), MistakeRequest(G)}


def test_mistakes_fall_on_different_turns_and_later_attempts_ask_at_once() -> None:
    def first(episode: int, attempt: int) -> bool:
        return at_least(2).ask(played([None]), episode=episode, attempt=attempt) is not None

    assert {first(episode, 1) for episode in range(20)} == {True, False}
    assert all(first(episode, 2) for episode in range(20))


def lasting(expected: int, *, chains: float) -> Mistakes:
    """A policy that asks for four mistakes in every play of this length."""
    return Mistakes(policy="spread", mean=4, clean=0, chains=chains, expected=expected)


def rehearsed(policy: Mistakes, *, episode: int, length: int) -> list[MistakeKind | None]:
    """Verdicts of a play by a player that obeys, of so many right actions."""
    verdicts: list[MistakeKind | None] = []
    while sum(kind is None for kind in verdicts) < length:
        asked = policy.ask(played(verdicts), episode=episode, seed=7 * episode)
        verdicts.append(asked.kind if asked is not None and asked.style in {"fresh", "again"} else None)
    return verdicts


@pytest.mark.long
def test_spread_is_not_lopsided_over_plays_of_various_lengths() -> None:
    plays = [rehearsed(spread(), episode=at, length=4 + at % 16) for at in range(900)]
    tenths = summed(mistakes_by_tenth(played(verdicts)) for verdicts in plays)
    assert not is_lopsided(tenths), tenths


@pytest.mark.long
def test_spread_keeps_to_its_mean_its_share_of_clean_plays_and_its_bounds() -> None:
    for mean, clean in ((1.0, 0.0), (2.0, 0.2), (3.5, 0.5)):
        policy = spread(mean, clean=clean, chains=0)
        length = policy.expected
        counts = [sum(kind is not None for kind in rehearsed(policy, episode=at, length=length)) for at in range(600)]
        holding = [count for count in counts if count]
        assert abs(len(holding) / len(counts) - (1 - clean)) < 0.06
        assert abs(sum(holding) / len(holding) - mean) < 0.15
        assert max(counts) <= MAX_MISTAKES
        assert counts == [policy.count(episode=at, seed=7 * at) for at in range(600)]


@given(kinds, st.integers(0, 50), st.integers(1, 12))
def test_after_a_mistake_spread_asks_for_nothing_but_how_it_is_repaired(
    verdicts: list[MistakeKind | None], episode: int, length: int
) -> None:
    asked = lasting(length, chains=0.9).ask(played(verdicts), episode=episode)
    repairing = bool(verdicts) and verdicts[-1] is not None
    assert asked is None or (asked.style == "fresh") == (not repairing)
    if verdicts[-2:] and None not in verdicts[-2:] and len(verdicts) > 1:
        assert asked is None, "two in a row are enough"
    if asked is not None and asked.style == "again":
        assert asked.kind != verdicts[-1]


def test_every_longer_way_of_repair_is_asked_for_as_often_as_said() -> None:
    def ways(made: MistakeKind) -> Counter[str]:
        policy = spread(4, clean=0, chains=0.6)
        asked = [policy.ask(played([made]), episode=episode, seed=episode) for episode in range(600)]
        return Counter(one.style for one in asked if one)

    found = ways(L)
    assert set(found) == {"again", "late", "give_up"}
    assert all(90 < count < 150 for count in found.values()), found
    assert set(ways(P)) == {"again"}, "a slip of form is understood at once, and no plan"


def test_after_a_late_repair_nothing_is_asked_for_until_it_is_made() -> None:
    for episode in range(200):
        after = lasting(4, chains=1).ask(played([L]), episode=episode)
        if after is not None and after.style == "late":
            assert lasting(4, chains=1).ask(played([L, None]), episode=episode) is None
            return
    pytest.fail("no late repair was asked for")


def test_spread_goes_on_asking_until_the_player_errs_and_changes_the_kind() -> None:
    policy = lasting(4, chains=0)
    asked = [policy.ask(played([None] * at), episode=0) for at in range(4, 10)]
    assert {one.kind for one in asked if one} == set(MistakeKind)
    assert all(asked)


def test_at_most_a_quarter_of_what_spread_asks_for_is_a_slip_of_form() -> None:
    verdicts = (rehearsed(spread(chains=0), episode=at, length=8) for at in range(600))
    counts = Counter(kind for one in verdicts for kind in one if kind)
    assert counts[P] < counts.total() / 4
    assert counts[G] < 1.5 * counts[L], "the first turn, which asks for no place, asks for logic"


def in_a_world(policy: Mistakes, *, episode: int, length: int, detours: int = 0) -> list[MistakeKind | None]:
    """Verdicts of a play by a player that obeys, in a world that says how much is left; some actions bring it no nearer."""
    away = set(Random(episode).sample(range(length + detours - 1), detours))
    verdicts: list[MistakeKind | None] = []
    while (right := sum(kind is None for kind in verdicts)) < length + detours:
        left = length - right + sum(at < right for at in away)
        asked = policy.ask(played(verdicts), episode=episode, seed=7 * episode, remaining=lambda left=left: left)
        verdicts.append(asked.kind if asked is not None and asked.style in {"fresh", "again"} else None)
    return verdicts


def test_in_an_executed_world_the_number_is_a_bound_and_none_comes_before_the_last_action() -> None:
    policy = spread(3, clean=0.1, chains=0)
    for at in range(300):
        verdicts = in_a_world(policy, episode=at, length=4 + at % 9, detours=at % 4)
        assert len(verdicts) - verdicts.count(None) <= policy.count(episode=at, seed=7 * at)
        assert verdicts[-2:] == [None, None] or verdicts[-2] is None


def test_in_an_executed_world_mistakes_are_spread_over_the_real_length() -> None:
    plays = [in_a_world(spread(), episode=at, length=7 + at % 5, detours=2 + at % 3) for at in range(900)]
    tenths = summed(mistakes_by_tenth(played(verdicts)) for verdicts in plays)
    thirds = [
        sum(tenths[:3]) + tenths[3] / 3,
        sum(tenths[4:6]) + 2 * (tenths[3] + tenths[6]) / 3,
        sum(tenths[7:]) + tenths[6] / 3,
    ]
    assert all(0.2 < third / sum(thirds) < 0.48 for third in thirds), thirds


def test_only_kinds_that_the_world_offers_are_asked_for() -> None:
    policy = spread(4, clean=0, chains=0.5)
    for kind in (L, G):
        for episode in range(60):
            befores: list[list[MistakeKind | None]] = [[None], [None, kind], [None, None, None]]
            for before in befores:
                for left in (2, 6):
                    asked = policy.ask(
                        played(before),
                        episode=episode,
                        remaining=lambda left=left: left,
                        kinds=lambda kind=kind: {kind},
                    )
                    assert asked is None or asked.kind is kind
    asked = [policy.ask(played([None]), episode=at, remaining=lambda: 2, kinds=lambda: {P}) for at in range(60)]
    assert {one.kind for one in asked if one} == {P}
    assert sum(one is None for one in asked) > 30, "where only the form can be wrong, it is asked for as rarely as else"


def test_a_policy_is_a_value_that_prints_and_reads_itself() -> None:
    policy = prompted(2, 3)
    assert Mistakes.model_validate_json(policy.model_dump_json()) == policy
    assert Mistakes() == spread()
    with pytest.raises(ValidationError):
        Mistakes(minimum=-1)
