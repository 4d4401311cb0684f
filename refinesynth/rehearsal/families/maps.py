"""Maps of rooms or zones: a ring with one short cut, and the shortest way between two of them."""

from collections.abc import Mapping
from random import Random

from refinesynth.rehearsal.families.family import shuffled

STEPS = range(5, 10)
"""Lengths of solutions that are kept."""


def ring_map(rng: Random, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Six of the names, each with those next to it."""
    ring = rng.sample(names, 6)
    lanes = {zone: {ring[at - 1], ring[(at + 1) % 6]} for at, zone in enumerate(ring)}
    one, other = ring[0], ring[rng.choice((2, 3, 4))]
    lanes[one].add(other)
    lanes[other].add(one)
    return {zone: sorted(lanes[zone]) for zone in shuffled(rng, ring)}


def route(lanes: Mapping[str, list[str]], start: str, end: str) -> list[str]:
    """The fewest steps from one to another, without the start."""
    ways: dict[str, list[str]] = {start: []}
    for zone in (reached := [start]):
        for name in lanes[zone]:
            if name not in ways:
                ways[name] = [*ways[zone], name]
                reached.append(name)
    return ways[end]
