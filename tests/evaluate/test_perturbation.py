"""The same task in other words: swapping twice changes nothing, and the original wording is no longer taken."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.evaluate.environments.environment import Action, BadInstance, Instance, Start, Step
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS, perturbed

WORDING = {
    "P1": ("clean mug 1 with sinkbasin 2", "clean mug 1 using sinkbasin 2"),
    "P2": ("go to sofa 1", "move to sofa 1"),
    "P3": ("take mug 1 from desk 2", "from desk 2 take mug 1"),
    "P4": ("put mug 1 in/on desk 12", "put mug1 in/on desk12"),
}
WORDS = (
    *["take", "from", "clean", "with", "using", "go", "move", "to", "mug", "1", "sofa2"],
    " ",
    ",",
    ".",
    ":",
    "\n",
    "-",
)
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))


@pytest.mark.parametrize("name", PERTURBATIONS)
@given(text=TEXT)
def test_swapping_twice_changes_no_text(name: str, text: str):
    swap = PERTURBATIONS[name]
    assert swap(swap(text)) == text


@pytest.mark.parametrize(("name", "wording"), WORDING.items())
def test_each_changes_the_action_that_it_is_about_and_no_other(name: str, wording: tuple[str, str]):
    swap = PERTURBATIONS[name]
    assert swap(wording[0]) == wording[1]
    if name != "P4":
        others = [before for other, (before, _) in WORDING.items() if other != name]
        assert [swap(one) for one in others] == others


def test_actions_are_worded_differently_where_text_lists_them_and_narration_stays():
    listed = (
        "Choose an action: go to bed 1, take cd 1 from bed 1, clean cd 1 with sink 1. You clean cd 1 with the sink 1."
    )
    assert PERTURBATIONS["P1"](listed) == listed.replace(", clean cd 1 with", ", clean cd 1 using")
    assert PERTURBATIONS["P2"](listed) == listed.replace("go to", "move to")
    assert PERTURBATIONS["P3"](listed) == listed.replace("take cd 1 from bed 1", "from bed 1 take cd 1")


class _OneAction:
    """Takes one action and knows its words alone."""

    def __init__(self, action: str) -> None:
        self._action = action

    def reset(self, _: Instance, /) -> Start:
        return Start(f"Say: {self._action}", "goal", (Action(self._action, parameters={"x": (self._action,)}),))

    def step(self, action: str, /) -> Step:
        won = action == self._action
        return Step(f"Taken: {action}", float(won), done=won, success=won, refused=not won)

    def valid_actions(self) -> Sequence[str]:
        return [self._action]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("name", "wording"), WORDING.items())
def test_what_the_player_reads_is_what_the_environment_takes(name: str, wording: tuple[str, str]):
    original, worded = wording
    environment = perturbed(_OneAction(original), name)
    assert environment.reset(Instance("", {})) == Start(
        f"Say: {worded}", "goal", (Action(worded, parameters={"x": (worded,)}),)
    )
    assert environment.valid_actions() == [worded]
    assert environment.step(original).refused
    assert environment.step(worded) == Step(f"Taken: {worded}", 1.0, done=True, success=True)


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("word", ["clean ", "take from ", "go to", "a1", "take a ", " from", "from a take "])
def test_long_text_takes_no_time(name: str, word: str):
    text = word * 20_000
    assert PERTURBATIONS[name](PERTURBATIONS[name](text)) == text


def test_an_unknown_name_is_refused():
    with pytest.raises(BadInstance, match=r"'P6'; expected one of P1"):
        perturbed(_OneAction(""), "P6")
