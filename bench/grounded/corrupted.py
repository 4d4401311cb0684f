"""Valid grounded drafts broken in every known way: how many of them a chain lets through."""

from collections.abc import Mapping

from hypothesis import HealthCheck, Phase, given, settings

from refinesynth.rules import Rule, verify
from refinesynth.testing import Corruption
from tests.grounded_corruptions import GROUNDED_CORRUPTIONS, grounded_corruptions


def let_through(chains: Mapping[str, Rule], *, each: int) -> tuple[int, dict[str, int]]:
    """How many corruptions were drawn, `each` of every kind, and how many of them each chain accepts. The same every
    time."""
    drawn: list[Corruption] = []

    def keep(corruption: Corruption) -> None:
        drawn.append(corruption)

    for name in GROUNDED_CORRUPTIONS:
        run = settings(
            max_examples=each,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )(given(grounded_corruptions(name))(keep))
        run()
    accepted = {
        name: sum(verify(corruption.draft, chain).accepted for corruption in drawn) for name, chain in chains.items()
    }
    return len(drawn), accepted
