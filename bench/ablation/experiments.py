"""What is measured with small models: the variants of the loss and data, and how far repairing carries over."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from zlib import crc32

import orjson

from bench.ablation.base import Draw
from bench.ablation.evaluation import Kinds, Start, kinds_of, starts
from bench.ablation.families import FAMILIES, Family, chain_of, play_chain, plays
from bench.ablation.playing import play
from bench.ablation.variants import VARIANTS, Variant
from bench.ablation.worlds import EVERY, every_name, scene_of
from refinesynth.settings.mistakes import Mistakes, spread
from refinesynth.trajectory import Trajectory


@dataclass(frozen=True)
class Experiment:
    """What each seed of an experiment does."""

    draw: Draw
    """Plays on which the base model is pretrained, clean ones."""
    names: Sequence[str]
    """All that occur in its worlds."""
    falls_after: int | None
    """Steps of the pretraining after which its learning rate falls; None if it stays."""
    variants: Callable[[int], tuple[Variant, ...]]
    """Of a seed; their names are the same for all."""
    starts: Callable[[int], tuple[Start, ...]]
    """From which plays begin, for a number of worlds."""
    kinds: Callable[[int, int], Kinds]
    """The records of the starts, for a seed and a number of worlds."""
    clean: str
    """Name of the start without a mistake."""
    heading: str
    """Of what was measured, on the experiments' page."""


def _bring(name: str, mistakes: Mistakes | None, episode: int) -> Trajectory:
    return play(name, scene_of(name, EVERY), mistakes, episode=episode)


def _any_family(name: str, mistakes: Mistakes | None, episode: int) -> Trajectory:
    family = FAMILIES[crc32(name.encode()) % len(FAMILIES)]
    return play_chain(name, chain_of(family, name), mistakes, episode=episode)


def split(seed: int) -> tuple[tuple[Family, ...], Family]:
    """The families that a seed tunes on, in order, and the one that it keeps for the plays."""
    at = seed % len(FAMILIES)
    return (*FAMILIES[at + 1 :], *FAMILIES[:at]), FAMILIES[at]


def _generalising(seed: int) -> tuple[Variant, ...]:
    families, _ = split(seed)

    def tuned_on(number: int, distinct: int | None = None) -> Callable[[int], Iterator[dict[str, Any]]]:
        return lambda seed: (
            orjson.loads(one.to_json())
            for one in plays(families[:number], f"seed {seed} train", spread(), distinct=distinct)
        )

    return (
        Variant("4 families", tuned_on(4)),
        Variant("2 families", tuned_on(2)),
        Variant("1 family", tuned_on(1)),
        Variant("4 families, without refinement data", tuned_on(4), {"without_refinement": True}),
        Variant("4 families, 128 worlds", tuned_on(4, 128)),
        Variant("4 families, 16 worlds", tuned_on(4, 16)),
    )


def _other_families(worlds: int) -> tuple[Start, ...]:
    return (
        Start("held-out family", "mistakes", "other", worlds),
        Start("tuned family", "mistakes", "tuned", worlds),
        Start("held-out family, clean", "worlds", "clean", max(1, worlds // 4)),
    )


def _of_families(seed: int, worlds: int) -> Kinds:
    families, other = split(seed)

    def begun(family: Family, mistakes: Mistakes | None) -> Iterator[dict[str, Any]]:
        found = plays((family,), "held out", mistakes)
        return (orjson.loads(one.to_json()) for one in islice(found, worlds))

    return {
        "other": begun(other, spread(1.0, clean=0)),
        "tuned": begun(families[0], spread(1.0, clean=0)),
        "clean": begun(other, None),
    }


EXPERIMENTS: Mapping[str, Experiment] = {
    "ablation": Experiment(
        draw=_bring,
        names=EVERY.every,
        falls_after=None,
        variants=lambda _: VARIANTS,
        starts=starts,
        kinds=lambda _, worlds: kinds_of(worlds),
        clean="clean",
        heading="What was measured",
    ),
    "generalisation": Experiment(
        draw=_any_family,
        names=every_name(),
        falls_after=400,
        variants=_generalising,
        starts=_other_families,
        kinds=_of_families,
        clean="held-out family, clean",
        heading="How far repairing carries over",
    ),
}
"""By the name with which the program is asked for them."""
