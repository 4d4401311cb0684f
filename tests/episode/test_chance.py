"""Transient failures by chance: as often as asked, replayable, and worded so that they pass for what they are."""

from hypothesis import given
from hypothesis import strategies as st
from samples import dm, player

from refinesynth.episode.ruled_action import FAILURE_TEXTS, transient_failure
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn

PLACES = st.fixed_dictionaries({name: st.integers(0, 2**31) for name in ("seed", "replica", "attempt")})
FAILED = (player("open box"), dm("It sticks.").model_copy(update={"transient": True}))


def fails(share: float, turn: int = 0, **place: int) -> bool:
    return transient_failure((player("open box"), dm("It opens.")) * turn, "look", share, **place) is not None


@given(PLACES, st.integers(0, 30), st.floats(0, 1, exclude_max=True))
def test_a_draw_depends_on_its_place_alone_and_grows_with_the_share(
    place: dict[str, int], turn: int, share: float
) -> None:
    assert fails(share, turn, **place) == fails(share, turn, **place)
    assert not fails(0.0, turn, **place)
    if fails(share, turn, **place):
        assert fails((share + 1) / 2, turn, **place)


def test_as_many_fail_as_asked() -> None:
    for name in ("seed", "replica", "attempt"):
        place = {"seed": 1, "replica": 2, "attempt": 3}
        drawn = [fails(0.25, **{**place, name: at}) for at in range(4_000)]
        assert 880 <= sum(drawn) <= 1_120, f"another {name} is another draw"
    assert 60 <= sum(fails(0.25, turn, seed=1) for turn in range(400)) <= 140, "another turn is another draw"


@given(st.integers(0, 2**31), st.integers(0, 100), st.integers(0, 50))
def test_no_excuse_comes_twice_until_all_came(seed: int, replica: int, before: int) -> None:
    told = [
        transient_failure(FAILED * (before + at), "look", 1.0, seed=seed, replica=replica)
        for at in range(len(FAILURE_TEXTS))
    ]
    assert {*told} == {*FAILURE_TEXTS}


def test_the_same_action_never_fails_twice_in_a_row() -> None:
    def told(turns: tuple[PlayerTurn | DungeonMasterTurn, ...], action: str) -> str | None:
        return transient_failure(turns, action, 1.0, seed=0)

    assert told((), "open box")
    assert told(FAILED, " Open  BOX") is None
    assert told(FAILED, "open window")
    assert told((player("open box"), dm("It opens.")), "open box")
    assert told((*FAILED, player("look"), dm("A box.")), "open box")
