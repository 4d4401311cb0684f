"""Samples: the same for the same seed, balanced within one, fair, and small in memory."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.personas import Records, sample
from refinesynth.personas.sampling import _BalancedDraw  # pyright: ignore[reportPrivateUsage]

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1)


def rows_of(sizes: dict[str, int], seed: int = 0) -> list[dict[str, Any]]:
    import random

    rows = [{"persona": f"{name} {number}", "domain": name} for name, size in sizes.items() for number in range(size)]
    random.Random(seed).shuffle(rows)
    return rows


@given(sizes=SIZES, n=st.integers(1, 120), seed=st.integers(0, 9))
def test_every_beginning_is_balanced_within_one(sizes: dict[str, int], n: int, seed: int) -> None:
    rows = rows_of(sizes, seed)
    drawn = sample(rows, n, seed=seed, balance_by="domain")
    assert len(drawn.records) == min(n, len(rows))
    assert len({record.persona.text for record in drawn.records}) == len(drawn.records)
    assert drawn.domains == Counter(record.fields["domain"] for record in drawn.records)
    taken: Counter[str] = Counter()
    for record in drawn.records:
        taken[str(record.fields["domain"])] += 1
        # No domain has two more than another that has more to give.
        most = max(taken.values())
        assert all(taken[name] >= most - 1 for name, size in sizes.items() if size > taken[name])


@pytest.mark.long
@given(sizes=SIZES, n=st.integers(1, 60), seed=st.integers(0, 9))
def test_the_same_seed_draws_the_same_and_memory_depends_on_n_alone(sizes: dict[str, int], n: int, seed: int) -> None:
    rows = rows_of({name: 9 * size for name, size in sizes.items()})
    drawn = sample(rows, n, seed=seed, balance_by="domain")
    assert sample(iter(rows), n, seed=seed, balance_by="domain") == drawn
    balanced = _BalancedDraw(n, seed)
    for record in Records(rows):
        balanced.offer(record, str(record.fields["domain"]))
        assert balanced.row_count <= 3 * n
    assert tuple(record for _, record in balanced) == drawn.records


def test_a_sample_is_fair() -> None:
    rows = [f"person {number}" for number in range(40)]
    seen = Counter(record.persona.text for seed in range(400) for record in sample(rows, 10, seed=seed).records)
    # 100 expected of each, with a deviation of 9.
    assert set(seen) == set(rows)
    assert 60 < min(seen.values()) <= max(seen.values()) < 140


def test_numbers_are_domains() -> None:
    clusters: list[object] = [0, 0, 0, 1, True, 2.5, None, ()]
    rows = [{"persona": f"A smith {at}", "cluster": cluster} for at, cluster in enumerate(clusters)]
    domains = sample(rows, 99, balance_by="cluster").domains
    assert domains == {"0": 3, "1": 1, "True": 1, "2.5": 1, "()": 1, "(none)": 1}


def test_a_field_that_no_row_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"balancing by 'profession'; beside the persona the fields are 'id'"):
        sample([{"persona": "A smith", "id": 1}], 5, balance_by="profession")
    with pytest.raises(InputError, match="there are no other fields"):
        sample(["A smith"], 5, balance_by="domain")
    with pytest.raises(InputError, match="at least one"):
        sample(["A smith"], 0)
    with pytest.raises(InputError, match=r"none of 1 rows is one\. line 1: is blank"):
        sample([""], 1)
