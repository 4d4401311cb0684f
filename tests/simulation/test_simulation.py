"""Simulated runs: whatever happens to server, disk and process, the files are those of an undisturbed run.

`make fuzz` plays 10,000 of them.
"""

import os

import pytest
from simulation import simulate

SEEDS = range(int(os.environ.get("SIMULATE_FROM", "0")), int(os.environ.get("SIMULATE_TO", "200")))
CHUNK = 10


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_a_run_is_the_same_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS.stop)):
        try:
            simulate(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: PYTHONPATH=tests python tests/simulation/simulation.py {seed}")
            raise
