"""How many calls a commit waits for."""

from refinesynth.journal.commits import ALL, LONGEST_S, Gathering


def begin_at(gathering: Gathering, now: float, came: int) -> int:
    wanted = gathering.begin(now)
    gathering.end(came, now + LONGEST_S)
    return wanted


def test_one_caller_after_the_other_is_waited_for_once_in_a_while_only() -> None:
    gathering = Gathering()
    wanted = [begin_at(gathering, at / 1_000, 1) for at in range(1_000)]
    assert wanted[0] == ALL
    assert wanted.count(ALL) <= 10
    assert set(wanted) == {1, ALL}


def test_where_many_come_as_many_are_waited_for() -> None:
    gathering = Gathering()
    assert begin_at(gathering, 0.0, 12) == ALL
    assert begin_at(gathering, 0.01, 12) == 12
    assert begin_at(gathering, 0.02, 3) == 12
    assert begin_at(gathering, 0.2, 2) == ALL
    assert begin_at(gathering, 0.21, 2) == 1
