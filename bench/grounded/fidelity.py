"""Simulation fidelity: how many wrong verdicts an imagining DungeonMaster makes, and which chain of rules lets them
through.

python -m bench.grounded.fidelity [--quick]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import orjson

from bench.figures import Figure, Section
from bench.grounded.corrupted import let_through
from bench.grounded.imagining import (
    CALLED_RIGHT,
    CALLED_WRONG,
    FEW_CHANGES,
    MANY_CHANGES,
    SLIPS,
    Judge,
    Misjudging,
    called_kinds,
    executing,
    imagining,
    play,
    true_kinds,
)
from bench.measuring import program
from refinesynth import rules
from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.scene import draw_scene
from refinesynth.rules import Rule
from refinesynth.trajectory import Draft, Script
from refinesynth.world import World, world_of
from tests.grounded_corruptions import GROUNDED_CORRUPTIONS

SHIPPED = Path(__file__).parents[2] / "refinesynth" / "prompts" / "examples" / "grounded"
"""The rulebooks that were written by hand."""

CHAINS: Mapping[str, Rule] = {
    "agentrefine()": rules.agentrefine(),
    "strict()": rules.strict(),
    "grounded()": rules.grounded(),
}


@dataclass(frozen=True)
class Stage:
    """A world to play in."""

    world: World
    useful: tuple[str, ...] | None
    """Actions that lead to its goal, where they are known."""


@dataclass(frozen=True)
class Kept:
    """What is left of many drafts."""

    drafts: int
    verdicts: int
    """Exchanges in them."""
    wrong: int
    """Verdicts that the rulebook contradicts."""
    false: int
    """Drafts that end in a success that there is not."""

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> "Kept":
        """Count them by the rulebook, which replays each."""
        pairs = [(called_kinds(draft), true_kinds(draft)) for draft in drafts]
        return cls(
            drafts=len(drafts),
            verdicts=sum(len(called) for called, _ in pairs),
            wrong=sum(one is not other for called, true in pairs for one, other in zip(called, true, strict=True)),
            false=sum(not _succeeds(draft) for draft in drafts),
        )


def measure(*, quick: bool) -> Section:
    """Every DungeonMaster over the same worlds with the same player."""
    count, shipped = (25, 3) if quick else (100, 12)
    stages = [*_rehearsed(count), *_by_hand(shipped)]
    rounds = _played("right", executing, stages)
    right = Kept.of(rounds)
    misjudging = Misjudging.where(_share_wrong(rounds))
    figures = [
        *_figures("the executor", rounds),
        *_figures("a world kept in mind", _played("imagine", imagining, stages)),
        *_figures("calls as humans judged them", _played("misjudge", misjudging, stages)),
        *_corruptions(each=8 if quick else 40),
    ]
    return Section(
        title="Simulation fidelity",
        how=f"{len(stages)} plays: {count} in rehearsed worlds, the others in the {len(list(SHIPPED.glob('*.json')))} handwritten rulebooks. The player believes its observations and makes a mistake in "
        f"{SLIPS:.0%} of its actions; in the executed world a play has {right.verdicts / max(right.drafts, 1):.1f} actions. Three DungeonMasters word their answers with the rulebook's texts. The first executes the "
        f"world. The second keeps it in memory: it remembers steps with one or two changes completely in {FEW_CHANGES[0]:.0%} to {FEW_CHANGES[1]:.0%} of the cases and larger steps in {MANY_CHANGES:.0%} (published rates of the better "
        f"models and of all models), forgets or invents changes otherwise, and judges correctly by its memory. The third knows the state and gives wrong verdicts: {CALLED_WRONG:.0%} of the actions that it refuses are right and {CALLED_RIGHT:.0%} of those that it accepts are "
        "wrong, as in human ratings; refused actions have no effect, which leads to further errors. A verdict is wrong if the rulebook contradicts it in a replay; shares refer to the verdicts in accepted plays. Corruptions are correct drafts in which one statement is changed against the rulebook: "
        "a flag, a kind of mistake, progress, success, a word, the order, the state, or a law.",
        figures=tuple(figures),
    )


def _figures(who: str, drafts: Sequence[Draft]) -> Iterator[Figure]:
    made = Kept.of(drafts)
    note = (
        f"{made.wrong:,} of {made.verdicts:,} in {made.drafts:,} finished plays, {made.false:,} of which reach no goal"
    )
    yield Figure(what=f"{who}: wrong verdicts made", value=_percent(made.wrong, made.verdicts), unit="%", note=note)
    for name, chain in CHAINS.items():
        kept = Kept.of([draft for draft in drafts if rules.verify(draft, chain).accepted])
        note = f"{kept.wrong:,} in {kept.drafts:,} plays kept, {kept.false:,} of which reach no goal"
        yield Figure(
            what=f"{who}: kept by {name}",
            value=_percent(kept.wrong, kept.verdicts),
            unit="%",
            goal=0.0 if name == "grounded()" else None,
            note=note,
        )


def _corruptions(*, each: int) -> Iterator[Figure]:
    drawn, accepted = let_through(CHAINS, each=each)
    for name, count in accepted.items():
        yield Figure(
            what=f"corruptions accepted by {name}",
            value=_percent(count, drawn),
            unit="%",
            goal=0.0 if name == "grounded()" else None,
            note=f"{count:,} of {drawn:,}, of {len(GROUNDED_CORRUPTIONS)} kinds",
        )


def _played(name: str, judge: Judge, stages: Sequence[Stage]) -> list[Draft]:
    """The plays that came to what the DungeonMaster takes for the goal."""
    drafts: list[Draft] = []
    for number, stage in enumerate(stages):
        draft = play(stage.world, judge, Random(f"{name}/{number}"), useful=stage.useful)
        if draft is not None:
            drafts.append(draft)
    return drafts


def _rehearsed(count: int) -> Iterator[Stage]:
    families = list(FAMILIES)
    for number in range(count):
        scene = draw_scene(f"{families[number % len(families)]}-{number}")
        yield Stage(world_of(scene.grounded), scene.useful)


def _by_hand(count: int) -> Iterator[Stage]:
    """So many plays in all, in turn."""
    found = [Script.model_validate(orjson.loads(path.read_bytes())) for path in sorted(SHIPPED.glob("*.json"))]
    for number in range(count if found else 0):
        script = found[number % len(found)]
        solution = script.rulebook.solution if script.rulebook else ()
        yield Stage(world_of(script), tuple(dict.fromkeys(solution)))


def _share_wrong(drafts: Sequence[Draft]) -> float:
    kinds = [kind for draft in drafts for kind in true_kinds(draft)]
    return sum(kind is not None for kind in kinds) / len(kinds)


def _succeeds(draft: Draft) -> bool:
    """Whether its actions reach the goal."""
    world = world_of(draft.script)
    state = draft.script.environment
    for turn in draft.turns:
        if turn.role == "Player":
            state = world.step(state, turn.action).state
    return world.done(state)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


if __name__ == "__main__":
    program(measure)
