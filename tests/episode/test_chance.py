"""Transient failures by chance: as often as asked, replayable, and worded so that they pass for what they are."""

from hypothesis import given
from hypothesis import strategies as st
from samples import SHED_GROUNDED, dm, player

from refinesynth.episode.ruled_action import EXCUSES, excuse, fails, tried_before
from refinesynth.rules.observation_words import judge_words
from refinesynth.world import world_of

PLACES = st.fixed_dictionaries({name: st.integers(0, 2**31) for name in ("seed", "replica", "attempt", "turn")})


@given(PLACES, st.floats(0, 1, exclude_max=True))
def test_a_draw_depends_on_its_place_alone_and_grows_with_the_share(place: dict[str, int], share: float) -> None:
    assert fails(share, **place) == fails(share, **place)
    assert not fails(0.0, **place)
    if fails(share, **place):
        assert fails((share + 1) / 2, **place)


def test_as_many_fail_as_asked() -> None:
    for name in ("seed", "replica", "attempt", "turn"):
        place = {"seed": 1, "replica": 2, "attempt": 3, "turn": 4}
        drawn = [fails(0.25, **{**place, name: at}) for at in range(4_000)]
        assert 880 <= sum(drawn) <= 1_120, f"another {name} is another draw"


@given(st.integers(0, 2**31), st.integers(0, 100), st.integers(0, 1_000))
def test_no_excuse_comes_twice_until_all_came(seed: int, replica: int, before: int) -> None:
    told = [excuse(seed=seed, replica=replica, before=before + at) for at in range(len(EXCUSES))]
    assert sorted(told) == sorted(EXCUSES)


def test_excuses_pass_as_words_for_a_transient_failure_and_for_nothing_else() -> None:
    world = world_of(SHED_GROUNDED)
    state = SHED_GROUNDED.environment
    for action in ("open box", "put key on bench", "take key"):
        ruling = world.step(state, action)
        for text in EXCUSES:
            assert not judge_words(world, ruling, world.visible(state), text, action=action, transient=True), text
    for text in EXCUSES:
        carried_out = world.step(state, "open box")
        assert judge_words(world, carried_out, world.visible(state), text, action="open box"), f"no failure: {text}"


def test_only_the_same_action_at_once_counts_as_tried() -> None:
    failed = dm("It sticks.").model_copy(update={"transient": True})
    assert not tried_before((), "open box")
    assert tried_before((player("open box"), failed), " Open  BOX")
    assert not tried_before((player("open box"), failed), "open window")
    assert not tried_before((player("open box"), dm("It opens.")), "open box")
    assert not tried_before((player("open box"), failed, player("look"), dm("A box.")), "open box")
