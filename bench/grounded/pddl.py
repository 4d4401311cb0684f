"""Our blocks world and a gripper, written as rulebooks, step by step against pddlgym on AgentBoard's problem files.

python -m bench.grounded.pddl --data FOLDER [--quick]; once before, python -m bench.grounded.pddl_setup

FOLDER is AgentBoard's `pddl` folder, with blockworld.pddl, blockworld/, gripper.pddl and gripper/.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Section, table
from bench.grounded.pddl_setup import PACKAGE, VENV, python_of
from bench.grounded.pddl_walk import Tally, walk
from bench.grounded.pddl_worlds import DOMAINS

STEPS, QUICK_STEPS = 2_000, 200
"""Random steps in each domain."""

KNOWN_WORLDS = "Known worlds, against pddlgym"

_HOW = (
    "Two hand-written rulebooks, the shipped blocks world (with a problem's blocks instead of its own) and a gripper, and "
    f"{PACKAGE.replace('==', ' ')} take the same random actions, legal and illegal ones, from the beginnings of AgentBoard's problem files; every other walk tends towards the goal. Compared after each: whether the action "
    "was legal, all literals of the state, which actions are legal next, whether the goal is reached, and how many of its literals hold."
)


def main() -> int:
    """0 if all agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="AgentBoard's pddl folder")
    parser.add_argument("--quick", action="store_true", help="fewer steps, for a first look")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = parser.parse_args()
    if problem := missing(asked.data):
        parser.error(problem)
    section = measure(asked.data, quick=asked.quick)
    print(f"{section.how}\n\n{table([section])}")
    if asked.json is not None:
        asked.json.write_bytes(section.to_json())
    return int(any(figure.met is False for figure in section.figures))


def missing(data: Path) -> str | None:
    """Why this cannot be measured here; None if it can."""
    absent = [name for domain in DOMAINS for name in (f"{domain.name}.pddl", domain.name) if not (data / name).exists()]
    if absent:
        return f"{data} has no {', '.join(absent)}: give AgentBoard's pddl folder with --data"
    return None if python_of(VENV).exists() else "pddlgym is not installed: python -m bench.grounded.pddl_setup"


def measure(data: Path, *, quick: bool) -> Section:
    """Both domains, one after the other."""
    figures: list[Figure] = []
    for domain in DOMAINS:
        steps = QUICK_STEPS if quick else STEPS
        figures.extend(_figures(domain.name, walk(domain, data, steps), steps))
    return Section(title=KNOWN_WORLDS, how=_HOW, figures=tuple(figures))


def _figures(name: str, tally: Tally, steps: int) -> Iterator[Figure]:
    for example in tally.examples:
        print(f"{name}: {example}", file=sys.stderr)
    note = f"{tally.problems} problems; {tally.accepted / tally.steps:.0%} of the steps legal, the goal holds after {tally.reached}"
    yield Figure(what=f"{name}: random steps", value=tally.steps, goal=steps, aim="at least", note=note)
    yield Figure(what=f"{name}: comparisons with pddlgym's list of legal actions", value=tally.listed)
    kinds = ", ".join(f"{count} in {what}" for what, count in sorted(tally.disagreements.items()))
    yield Figure(what=f"{name}: disagreements", value=tally.disagreements.total(), goal=0, note=kinds)


if __name__ == "__main__":
    sys.exit(main())
