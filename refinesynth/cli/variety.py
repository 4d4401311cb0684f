"""How various a run is, in words and figures."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from refinesynth.run.figures import FEATURES, LONGER, UNREADABLE
from refinesynth.run.variety import RuleStage, Spread, Variety
from refinesynth.text.figures import counted
from refinesynth.text.printable import one_line
from refinesynth.trajectory.positions import lopsided

_MANY, _TOO_CLEAN = 20, 0.15
"""Trajectories from which on it is said that too many hold no mistake; by how much their share may be larger than
asked."""

_MANY_STEPS = 12
"""Lengths of solutions that are shown apart; longer ones are shown together."""


def variety_rows(variety: Variety) -> Iterator[tuple[str, str]]:
    """A label and what there is to say, line by line; nothing of a run without trajectories."""
    if variety.scripts:
        passed = variety.scripts - sum(stage.refused for stage in variety.stages)
        yield "scripts", f"{variety.scripts:,} written, {passed:,} of them passed ({passed / variety.scripts:.0%})"
        for stage in variety.stages:
            yield "", _stage(stage)
    if not variety.trajectories:
        return
    distinct = f"{counted(variety.environments, 'environment')} and {counted(variety.action_names, 'action name')}"
    yield "distinct", f"{distinct} in {counted(variety.trajectories, 'trajectory', 'trajectories')}"
    if variety.turns is not None:
        yield "turns", _spread(variety.turns)
    if (steps := Spread.of(variety.steps)) is not None:
        yield "difficulty", f"shortest solution {_spread(steps)} actions: {_shares(variety.steps)}"
        yield "features", _features(variety)
    yield from _mistakes(variety)
    if variety.transient:
        yield "transient", f"{counted(variety.transient, 'right action')} failed for a moment"
    if variety.plain:
        yield "words", f"the rulebook's own in {counted(variety.plain, 'answer')}: none of the DungeonMaster's would do"
    if variety.near_duplicates or variety.contaminated:
        copies = counted(variety.near_duplicates, "near-duplicate")
        yield "curated", f"{copies} and {variety.contaminated:,} contaminated refused"


def _mistakes(variety: Variety) -> Iterator[tuple[str, str]]:
    """Of which kinds they are, where they stand, and what became of them."""
    kinds = sorted(variety.mistakes.items(), key=lambda item: (-item[1], item[0]))
    mean, clean = variety.mistakes.total() / variety.trajectories, variety.clean / variety.trajectories
    each = f"; {mean:.1f} a trajectory, none in {clean:.0%}"
    yield "mistakes", f"{', '.join(f'{count:,} {one_line(kind)}' for kind, count in kinds)}{each}" if kinds else "none"
    asked = variety.clean_asked
    if asked is not None and variety.trajectories >= _MANY and clean > asked + _TOO_CLEAN:
        yield "", f"{asked:.0%} were to hold none: the player makes too few, or its world lets them pass"
    if total := sum(variety.tenths):
        shares = " ".join(f"{mass / total:.0%}" for mass in variety.tenths)
        uneven = "; uneven: the fullest middle tenth holds more than twice the emptiest"
        yield "by tenth", f"{shares} of them{uneven if lopsided(variety.tenths) else ''}"
    if variety.refinements or variety.unrelated:
        alone = f"; {counted(variety.unrelated, 'mistake')} followed by unrelated actions alone"
        refined = f"{counted(variety.refinements, 'mistake')} answered by a later action"
        ways = "".join(f", {variety.longer[way]:,} {way}" for way in LONGER if variety.longer[way])
        yield "refined", f"{refined}{ways}{alone if variety.unrelated else ''}"


def as_json(variety: Variety) -> dict[str, Any]:
    """For programs."""
    return {
        "trajectories": variety.trajectories,
        "environments": variety.environments,
        "action_names": variety.action_names,
        "turns": None if variety.turns is None else _spread_json(variety.turns),
        "steps": {str(steps): count for steps, count in sorted(variety.steps.items())},
        "features": {feature: variety.features[feature] for feature in FEATURES} if variety.steps else {},
        "mistakes": dict(variety.mistakes),
        "refinements": variety.refinements,
        "unrelated": variety.unrelated,
        "longer": {field: variety.longer[way] for way, field in LONGER.items()},
        "mistakes_by_tenth": [round(mass, 1) for mass in variety.tenths],
        "clean": variety.clean,
        "transient": variety.transient,
        "plain": variety.plain,
        "near_duplicates": variety.near_duplicates,
        "contaminated": variety.contaminated,
        "scripts": variety.scripts,
        "stages": [asdict(stage) for stage in variety.stages],
    }


def _stage(stage: RuleStage) -> str:
    who = "could not be read" if stage.rule == UNREADABLE else f"by {one_line(stage.rule, most=40)}"
    return f"{stage.refused:,} {who}, {stage.left:,} left"


def _spread(spread: Spread) -> str:
    return f"{spread.least:,} to {spread.most:,}, median {spread.middle:,g}"


def _spread_json(spread: Spread) -> dict[str, float]:
    return {"min": spread.least, "median": spread.middle, "max": spread.most}


def _features(variety: Variety) -> str:
    """`distractors 95%, irreversible 24%, ...`: shares of the grounded trajectories, as measured."""
    total = variety.steps.total()
    return "measured: " + ", ".join(f"{feature} {variety.features[feature] / total:.0%}" for feature in FEATURES)


def _shares(steps: Counter[int]) -> str:
    """`2: 12%, 3: 40%, ...`."""
    total = steps.total()
    shares = [(str(length), count) for length, count in sorted(steps.items())]
    if len(shares) > _MANY_STEPS:
        rest = sum(count for _, count in shares[_MANY_STEPS - 1 :])
        shares = [*shares[: _MANY_STEPS - 1], (f"{shares[_MANY_STEPS - 1][0]} and more", rest)]
    return ", ".join(f"{length}: {count / total:.0%}" for length, count in shares)
