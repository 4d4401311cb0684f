"""What scripts have in common with the examples shown: a copy has everything, and others little."""

from hypothesis import given
from hypothesis import strategies as st

from refinesynth.diversity.borrowing import Borrowed, Marks
from refinesynth.episode.episode import borrowed_from
from refinesynth.outcome import EpisodeOutcome
from refinesynth.prompts import SHOWN, Kind, Prompts, drawn
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.testing import valid_scripts
from refinesynth.trajectory import Persona, Script

PROMPTS = Prompts()
EXAMPLES = PROMPTS.examples


def test_a_copy_of_an_example_that_was_shown_is_all_borrowed_and_of_another_is_not() -> None:
    for seed in range(40):
        (copied, *_) = drawn(EXAMPLES.scripts, Kind.SCRIPTS, seed)
        found = borrowed_from(PROMPTS, copied, seed=seed)
        assert found is not None
        assert found.names_shown == found.names == len(copied.actions)
        assert found.structure_shown == found.structure > 0
        assert found.names_other < found.names / 2
        assert found.structure_other < found.structure / 2
        (unseen, *_) = drawn(EXAMPLES.scripts, Kind.SCRIPTS, seed, after=SHOWN)
        other = borrowed_from(PROMPTS, unseen, seed=seed)
        assert other is not None
        assert other.names_other == other.names > other.names_shown


def test_grounded_scripts_are_compared_with_grounded_examples() -> None:
    (copied, *_) = drawn(EXAMPLES.grounded, Kind.GROUNDED, 7)
    found = borrowed_from(PROMPTS, copied, seed=7)
    assert found is not None
    assert found.structure_shown == found.structure


def test_placeholders_may_be_called_otherwise() -> None:
    one = EXAMPLES.scripts[0]
    renamed = [
        action.model_copy(update={"name": action.name.upper().replace("{", "{MY_"), "parameters": {}})
        for action in one.actions
    ]
    assert Marks.of(one.model_copy(update={"actions": tuple(renamed)})).names == Marks.of(one).names


@given(valid_scripts())
def test_no_more_is_borrowed_than_there_is_and_without_as_many_others_nobody_can_tell(script: Script) -> None:
    found = borrowed_from(PROMPTS, script, seed=3)
    assert found is not None
    assert max(found.names_shown, found.names_other) <= found.names
    assert max(found.structure_shown, found.structure_other) <= found.structure
    assert borrowed_from(FEW, script, seed=3) is None


FEW = Prompts(examples=EXAMPLES.model_copy(update={"scripts": EXAMPLES.scripts[: 2 * SHOWN - 1], "grounded": ()}))
COUNTS = st.builds(Borrowed, **dict.fromkeys(Borrowed.model_fields, st.integers(0, 99)))


@given(st.lists(st.none() | COUNTS, max_size=4))
def test_the_sums_are_kept_in_the_journal(counts: list[Borrowed | None]) -> None:
    totals = Totals()
    for one in counts:
        outcome = EpisodeOutcome(index=0, id="x", persona=Persona(text="Somebody"), borrowed=one)
        totals.add(EpisodeLine.from_json(EpisodeLine.of(outcome).to_json()))
    kept = Totals.from_json(totals.to_json()).figures.borrowed
    assert kept.model_dump() == {
        name: sum(getattr(one, name) for one in counts if one is not None) for name in Borrowed.model_fields
    }
