"""Several models for one role: how they are named, opened, taken in turn and recorded."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.backends import Backend, BackendSpec, Role, resolve_roles
from refinesynth.backends.backend import Mixed
from refinesynth.client import open_models
from refinesynth.client.budget.budget import Budget
from refinesynth.client.routing import RoundRobinModel, in_turn, leaves_of, limiters_in
from refinesynth.errors import ConfigurationError
from refinesynth.rehearsal import Rehearsal
from refinesynth.synthesis.setup import prices_of
from refinesynth.synthesis.workers.block_driver import share_of_limits

ONE = Backend(model="openai/one", temperature=0.5, max_in_flight=8)
TWO = Backend(model="openai/two", base_url="http://127.0.0.1:8000/v1", max_in_flight=4)
THREE = Backend(model="openai/three")

backends = st.builds(Backend, model=st.sampled_from(["a", "b", "c"]), temperature=st.none() | st.floats(0, 2))


@given(st.lists(backends, min_size=1, max_size=5))
def test_a_mixture_is_its_parts_in_their_order(parts: list[Backend]) -> None:
    mixture = Mixed.of(parts)
    assert mixture.members == tuple(parts)
    assert Mixed.of([mixture, *parts]).members == (*parts, *parts), "a mixture in a mixture is its parts"
    if len(parts) == 1:
        assert mixture == parts[0]
    assert all(type(one) is Backend for one in mixture.members)


async def test_only_the_role_with_a_list_has_several_and_equal_ones_share_a_connection() -> None:
    chosen = resolve_roles({"default": ONE, "player": [ONE, TWO, ONE]})
    assert chosen[Role.PLAYER].members == (ONE, TWO, ONE)
    assert chosen[Role.DUNGEON_MASTER] == ONE
    models = open_models(chosen, call=Rehearsal())
    player = models[Role.PLAYER]
    assert isinstance(player, RoundRobinModel)
    assert player.models[0] is player.models[2] is models[Role.DUNGEON_MASTER]
    assert len(leaves_of(models.values())) == 2
    assert len(limiters_in([player])) == 2
    assert [in_turn(player, number).model_name for number in range(4)] == ["openai/one", "openai/two"] + [
        "openai/one"
    ] * 2
    assert in_turn(models[Role.JUDGE], 7) is models[Role.JUDGE]


async def test_each_of_a_mixture_has_the_fallback() -> None:
    models = open_models(resolve_roles({"default": ONE, "player": [ONE, TWO]}), call=Rehearsal(), fallback=THREE)
    assert {model.model_name for model in leaves_of([models[Role.PLAYER]])} == {
        "openai/one",
        "openai/two",
        "openai/three",
    }


@pytest.mark.parametrize("given_", [[], [5], 5, {"a": "b"}, [["rehearsal"]]])
def test_a_list_that_names_nothing_is_said(given_: object) -> None:
    with pytest.raises(ConfigurationError, match="player has"):
        resolve_roles(cast("BackendSpec", {"default": "rehearsal", "player": given_}))


def test_every_part_has_its_share_of_its_limits_and_its_price() -> None:
    mixture = Mixed.of([ONE, TWO])
    assert share_of_limits(mixture, 2).members == (share_of_limits(ONE, 2), share_of_limits(TWO, 2))
    priced = TWO.model_copy(update={"input_price": 1.0, "output_price": 2.0})
    with pytest.raises(ConfigurationError, match="openai/three"):
        prices_of([Mixed.of([priced, THREE])], Budget.of("5usd"), injected=True)
