"""What is counted in an episode."""

from hypothesis import given
from hypothesis import strategies as st

from refinesynth.evaluate.episode_counts import Counts, EpisodeStep, counts

MOVES = st.lists(
    st.builds(EpisodeStep, action=st.sampled_from(("", "open door", "go north")), failed=st.booleans()).map(
        lambda move: EpisodeStep(move.action, failed=move.failed or not move.action)
    ),
    max_size=12,
)


def test_failures_repeats_and_recoveries_of_one_episode():
    found = counts(
        [
            EpisodeStep("a", failed=True),
            EpisodeStep("a", failed=True),  # Repeats what failed.
            EpisodeStep("b", failed=False),  # Recovers after two turns.
            EpisodeStep("", failed=True),
            EpisodeStep("c", failed=False),  # Recovers after one.
            EpisodeStep("d", failed=True),  # Never recovers.
        ]
    )
    assert found == Counts(
        turns=6, format_errors=1, refused=3, after_failure=3, repeated=1, failures=3, recovered=2, steps_to_recover=3
    )
    assert found.rates["steps_to_recover"] == 1.5


@given(MOVES)
def test_counts_are_consistent(moves: list[EpisodeStep]):
    found = counts(moves)
    assert found.format_errors + found.refused == sum(move.failed for move in moves)
    assert found.repeated <= found.after_failure <= found.format_errors + found.refused
    assert found.recovered <= found.failures
    assert found.recovered <= found.steps_to_recover
    # Only the last stretch can be without an end.
    assert found.failures - found.recovered == bool(moves and moves[-1].failed)
    assert found + counts(moves) == counts(moves) + found
