"""The loop on a model's own mistakes: what is mixed, and what the table says of it."""

from itertools import islice
from pathlib import Path

import orjson
import pytest

pytest.importorskip("transformers", reason="needs the extra train")

from bench.rounds.one_seed import ARMS, mixed
from bench.rounds.report import picture, read_rounds, report

pytestmark = pytest.mark.train


def test_own_plays_and_the_teachers_come_by_turns() -> None:
    teachers = mixed([{"id": f"own {at}"} for at in range(2)], lambda seed: ({"id": f"{seed}-{at}"} for at in range(9)))
    assert [one["id"] for one in islice(teachers(7), 6)] == ["own 0", "7-0", "own 1", "7-1", "7-2", "7-3"]


def test_the_last_round_is_compared_by_seed_and_world(tmp_path: Path) -> None:
    for seed in range(4):
        folder = tmp_path / f"seed-{seed:02d}"
        folder.mkdir()
        for arm, at, success in ((ARMS[0], 0, "0000"), (ARMS[0], 1, "1110"), (ARMS[1], 1, "1100")):
            one = {"arm": arm, "round": at, "seed": seed, "own plays": 10 * at, "mistakes in them": 5}
            starts = {"mistake": {"success": success}, "clean": {"success": "1111"}}
            (folder / f"{arm[:3]}-{at}.json").write_bytes(orjson.dumps({**one, "starts": starts}))
    models = read_rounds(tmp_path)
    told = report(models)
    assert "| own plays | 1 | 4 | 75.0 ± 0.0 | 100.0 ± 0.0 | 10 | 0.50 |" in told
    assert "own plays less teacher's plays alone: +25.0 points" in told
    assert "p = 0.125, 4 seeds" in told
    picture(models, tmp_path / "rounds.png")
    assert (tmp_path / "rounds.png").read_bytes().startswith(b"\x89PNG")
