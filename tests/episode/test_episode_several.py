"""Several trajectories of one script: laws of plays and branches, with the rehearsal and with models that answer from a
list."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interrupted_episodes import FAULTY, PERSONA, Memory, continued
from samples import dm, player
from scripted import Scripted, said
from stage import GOOD, OPEN, PUT, TAKE, Turn, live, rehearsing, settings_for

from refinesynth import rules
from refinesynth.backends import BackendSpec
from refinesynth.episode import EpisodeOutcome, EpisodeSettings, play_episode
from refinesynth.episode.episode import fork
from refinesynth.errors import EpisodeAbandoned
from refinesynth.outcome import Cost
from refinesynth.rules import verify
from refinesynth.settings import Attempts, Grounding
from refinesynth.trajectory import Branch, DungeonMasterTurn, PlayerTurn

PLAYS = ("live", "narrated")

THOUGHTFUL = tuple(turn.model_copy(update={"thought": "After all."}) for turn in GOOD)
HASTY = (*OPEN, *TAKE, *PUT)
"""Refused: it holds no mistake."""


async def rehearsed(settings: EpisodeSettings, *, backend: BackendSpec = "rehearsal", index: int = 3) -> EpisodeOutcome:
    return await play_episode(PERSONA, index=index, settings=settings, models=rehearsing(backend))


def total(outcome: EpisodeOutcome) -> Cost:
    return Cost(usage=outcome.usage, cost_usd=outcome.cost_usd)


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize(("episodes", "branches"), [(3, 1), (1, 3), (2, 2)])
async def test_each_is_verified_as_a_whole_and_they_differ_in_turns_and_share_their_script(
    play: str, episodes: int, branches: int
) -> None:
    settings = settings_for(play=play, episodes_per_script=episodes, branches=branches)
    outcome = await rehearsed(settings)
    found = outcome.trajectories
    assert len(found) == episodes * branches
    assert outcome.reason is None
    assert [one.id for one in found] == [outcome.id, *(f"{outcome.id}-{number}" for number in range(1, len(found)))]
    assert {one.provenance.script_id for one in found} == {found[0].script.digest}
    assert all(one.script == found[0].script for one in found)
    assert len({one.turns for one in found}) == len(found)
    for number, one in enumerate(found):
        assert verify(one.draft(), settings.rules).accepted
        trunk = found[number - number % branches]
        branch = one.provenance.branch
        assert branch is not None
        assert (branch.number, branch.of) == (number, len(found))
        if one is trunk:
            assert branch.shared_turns == 0
            continue
        shared = branch.shared_turns
        assert one.turns[:shared] == trunk.turns[:shared]
        assert one.turns[shared] != trunk.turns[shared]
        assert shared >= len(fork(trunk.turns, seed=one.provenance.seed, number=number - number % branches)) > 0


async def test_one_trajectory_is_what_it_was_before_there_could_be_several() -> None:
    alone = (await rehearsed(settings_for())).trajectories
    among = (await rehearsed(settings_for(episodes_per_script=2, branches=2))).trajectories
    assert len(alone) == 1
    assert alone[0].provenance.branch is None
    assert alone[0].id == among[0].id
    assert alone[0].turns == among[0].turns


def exchange(error: bool, transient: bool) -> tuple[PlayerTurn, DungeonMasterTurn]:
    told = dm("Hm.", "logic" if error else "").model_copy(update={"transient": transient and not error})
    return player("wait"), told


turns = st.lists(st.builds(exchange, st.booleans(), st.booleans()), max_size=20).map(
    lambda exchanges: tuple(turn for exchange in exchanges for turn in exchange)
)


def went_well(turn: Turn) -> bool:
    return isinstance(turn, DungeonMasterTurn) and not turn.flagged and not turn.transient


@given(turns, st.integers(0, 2**31), st.integers(0, 9))
def test_a_fork_ends_after_an_accepted_exchange_and_leaves_something_to_play(
    played: tuple[Turn, ...], seed: int, number: int
) -> None:
    start = fork(played, seed=seed, number=number)
    assert start == fork(played, seed=seed, number=number)
    assert start == played[: len(start)]
    good = [at for at in range(2, len(played), 2) if went_well(played[at - 1])]
    if not good:
        assert start == ()
        return
    assert len(start) in good
    in_the_middle = [at for at in good if len(played) <= 3 * at <= 2 * len(played)]
    assert not in_the_middle or len(start) in in_the_middle


async def test_a_play_that_fails_does_not_spoil_the_others() -> None:
    stage = live(*GOOD, *HASTY, *THOUGHTFUL)
    outcome = await stage.play(episodes_per_script=3, attempts=Attempts(drafts=1))
    assert [one.turns for one in outcome.trajectories] == [GOOD, THOUGHTFUL]
    assert [one.id for one in outcome.trajectories] == [outcome.id, f"{outcome.id}-2"]
    assert [refused.stage for refused in outcome.refused] == ["draft"]
    assert outcome.refused[0].draft is not None
    assert outcome.refused[0].draft.turns == HASTY
    assert outcome.reason is None


async def test_an_answer_that_is_refused_for_good_ends_its_play_alone() -> None:
    refusal = EpisodeAbandoned("the player refused to answer")
    stage = live(*GOOD)
    stage.player = Scripted([refusal, *map(said, GOOD[::2])])
    outcome = await stage.play(episodes_per_script=2)
    assert [one.turns for one in outcome.trajectories] == [GOOD]
    assert outcome.reason is None
    nothing = await live(refusal).play(episodes_per_script=2)
    assert nothing.trajectories == ()
    assert nothing.reason == "the player refused to answer"


async def test_each_play_has_all_its_attempts_and_every_refused_draft_its_own_number() -> None:
    stage = live(*HASTY, *GOOD, *HASTY, *HASTY, *THOUGHTFUL)
    outcome = await stage.play(episodes_per_script=2, attempts=Attempts(drafts=3))
    assert [one.provenance.attempts for one in outcome.trajectories] == [2, 3]
    assert [refused.attempt for refused in outcome.refused] == [1, 3, 4]


async def test_the_same_turns_are_not_accepted_twice() -> None:
    outcome = await live(*GOOD, *GOOD).play(episodes_per_script=2)
    assert [one.turns for one in outcome.trajectories] == [GOOD]
    assert [refused.rejecting for refused in outcome.refused] == [("Distinct",)]


async def test_a_branch_is_taken_back_to_where_it_began_and_no_further() -> None:
    # Too few mistakes condemn the whole of a draft; the part that was verified in the trunk stays.
    outcome = await live(*GOOD, *PUT, *THOUGHTFUL[6:]).play(branches=2, attempts=Attempts(drafts=2))
    trunk, branch = outcome.trajectories
    assert fork(GOOD, seed=trunk.provenance.seed, number=0) == GOOD[:6]
    assert trunk.turns == GOOD
    assert branch.turns == (*GOOD[:6], *THOUGHTFUL[6:])
    assert branch.provenance.branch == Branch(number=1, of=2, shared_turns=6)
    assert branch.provenance.attempts == 2
    assert [refused.draft and refused.draft.turns for refused in outcome.refused] == [(*GOOD[:6], *PUT)]


@pytest.mark.parametrize("play", PLAYS)
async def test_what_an_episode_took_is_shared_by_its_trajectories_and_what_was_wasted_is_in_it(play: str) -> None:
    for index in range(4):
        settings = settings_for(play=play, episodes_per_script=2, branches=2, seed=index)
        outcome = await rehearsed(settings, backend=FAULTY, index=index)
        shares = [Cost(usage=one.provenance.usage, cost_usd=one.provenance.cost_usd) for one in outcome.trajectories]
        if shares:
            assert sum(shares, Cost()) == total(outcome)
        wasted = sum((Cost(usage=one.usage, cost_usd=one.cost_usd) for one in outcome.refused), Cost())
        kept = total(outcome) - wasted
        assert min(count for _, count in kept.usage) >= 0


async def test_a_bound_on_calls_holds_for_each_play() -> None:
    # One for the script, ten for a play; the second play may ask as often as all of the first.
    outcome = await live(*GOOD, *THOUGHTFUL).play(episodes_per_script=2, attempts=Attempts(calls=11))
    assert len(outcome.trajectories) == 2
    stage = live(*GOOD, *THOUGHTFUL)
    stage.master = Scripted([said(turn) for turn in (*GOOD[1:-1:2], *THOUGHTFUL[1::2])])
    bounded = await stage.play(episodes_per_script=2, attempts=Attempts(calls=10))
    assert [one.turns for one in bounded.trajectories] == [THOUGHTFUL]


@pytest.mark.long
@pytest.mark.parametrize(("play", "lives"), [("live", 1), ("live", 7), ("narrated", 1), ("grounded", 7)])
async def test_killed_at_any_completion_of_any_play_it_goes_on_and_the_outcome_is_that_of_one_piece(
    play: str, lives: int
) -> None:
    executed = {"script_rules": rules.grounded_script(), "grounding": Grounding(transient=0.2)}
    given: dict[str, Any] = {"episodes_per_script": 2, "branches": 2, "seed": 5}
    settings = settings_for(play, **given, **(executed if play == "grounded" else {}))
    mixture: Mapping[str, Any] = {"default": FAULTY, "player": [FAULTY, "rehearsal"], "narrator": [FAULTY, "rehearsal"]}
    whole = await continued(settings, index=1, lives=lives, backend=mixture)
    assert len(whole.trajectories) > 1


async def test_two_plays_that_ask_the_same_have_an_answer_each() -> None:
    """Narrated plays of one script begin with the same words; what is remembered of the first is not the second's
    answer."""
    settings = settings_for(play="narrated", episodes_per_script=3)
    memory = Memory()
    models = rehearsing()
    first = await play_episode(PERSONA, index=0, settings=settings, models=models, memory=memory)
    begun = [one for one in memory.kept.values() if one.role == "narrator"]
    assert len({one.digest for one in begun}) < len(begun), "the plays do not ask the same, and this shows nothing"
    again = await play_episode(PERSONA, index=0, settings=settings, models=models, memory=replace(memory, lives=1))
    assert again == first
    assert len({one.turns for one in first.trajectories}) == 3


@pytest.mark.parametrize("index", range(3))
async def test_the_models_of_a_role_take_turns_over_episodes_and_plays(index: int) -> None:
    second = "rehearsal:natural_mistake=0.9"
    backend: Mapping[str, Any] = {"default": "rehearsal", "player": ["rehearsal", second]}
    outcome = await rehearsed(settings_for(episodes_per_script=3), backend=backend, index=index)
    expected = ["rehearsal" if (index + number) % 2 == 0 else second for number in range(3)]
    assert [one.provenance.models["player"] for one in outcome.trajectories] == expected
    assert {one.provenance.models["dungeon_master"] for one in outcome.trajectories} == {"rehearsal"}


async def test_a_branch_by_another_model_names_both() -> None:
    second = "rehearsal:natural_mistake=0.9"
    backend: Mapping[str, Any] = {"default": "rehearsal", "player": ["rehearsal", second]}
    outcome = await rehearsed(settings_for(branches=3), backend=backend, index=0)
    named = [one.provenance.models["player"] for one in outcome.trajectories]
    assert named == ["rehearsal", f"rehearsal, {second}", "rehearsal"]
