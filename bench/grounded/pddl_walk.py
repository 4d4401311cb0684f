"""Random walks in which a rulebook and pddlgym take the same actions, compared step by step."""

import json
import subprocess
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any, cast

from pydantic import JsonValue

from bench.grounded.pddl_aims import choose
from bench.grounded.pddl_files import Literal, Problem, read_problem
from bench.grounded.pddl_setup import VENV, python_of
from bench.grounded.pddl_worlds import Domain
from refinesynth.world import World

WALK = 50
"""Most steps from one problem's beginning, before the next one is begun."""

LEGAL = 0.6
"""Share of actions that are drawn from the legal ones; the others are drawn from all, whatever their objects are."""

LISTED_EVERY = 5
"""States between two whose whole lists of legal actions are compared; of the others, it is those that pddlgym lists."""

_EXAMPLES = 5
"""Disagreements that are kept to be shown."""


@dataclass
class Tally:
    """What was compared in one domain, and what disagreed."""

    problems: int = 0
    steps: int = 0
    accepted: int = 0
    """Steps that pddlgym found legal."""
    listed: int = 0
    """Comparisons with pddlgym's own list of legal actions."""
    reached: int = 0
    """Steps after which the goal was reached."""
    disagreements: Counter[str] = field(default_factory=Counter[str])
    examples: list[str] = field(default_factory=list[str])

    def compare(self, what: str, where: str, *, ours: object, theirs: object) -> None:
        """Count it if the two are not equal."""
        if ours == theirs:
            return
        self.disagreements[what] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{where}: {what}: here {ours!r}, pddlgym {theirs!r}")


@dataclass(frozen=True)
class PddlGym:
    """pddlgym in a process of its own."""

    process: "subprocess.Popen[str]"

    def ask(self, **question: object) -> dict[str, Any]:
        """Its answer; RuntimeError if it ended instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("pddlgym ended before it answered; its traceback is above")
        return cast("dict[str, Any]", json.loads(line))


@contextmanager
def pddlgym(domain: Path, folder: Path) -> Generator[PddlGym]:
    """pddlgym with a domain file and a folder of problem files; it is ended when the block is left."""
    command = [python_of(VENV), "-W", "ignore", Path(__file__).with_name("pddl_job.py"), domain, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield PddlGym(process)
        finally:
            process.terminate()


def walk(domain: Domain, data: Path, steps: int, seed: int = 1) -> Tally:
    """Walk from each problem's beginning, over and over again, until there are `steps` steps in all."""
    problems = [read_problem(path) for path in sorted((data / domain.name).glob("*.pddl"))]
    tally, rng = Tally(problems=len(problems)), Random(seed)
    with pddlgym(data / f"{domain.name}.pddl", data / domain.name) as theirs:
        for number, problem in enumerate(cycle(problems)):
            if tally.steps >= steps:
                break
            # Each problem once with an aim and once without, before all of them again.
            aims = (number + number // len(problems)) % 2 == 0
            _Walk(domain, problem, theirs, tally, aims).go(min(WALK, steps - tally.steps), rng)
    return tally


@dataclass
class _Walk:
    domain: Domain
    problem: Problem
    theirs: PddlGym
    tally: Tally
    aims: bool
    world: World = field(init=False)
    possible: list[Literal] = field(init=False)
    """Actions that pddlgym may list: with objects of the right sorts, and never the same one twice."""

    def __post_init__(self) -> None:
        self.world = World(self.domain.script(self.problem))
        self.possible = [
            action
            for action in self._everything()
            if len(set(action)) == len(action) and self.world.read(self.domain.text(action)) is not None
        ]

    def go(self, steps: int, rng: Random) -> None:
        """Begin, and take random actions."""
        answer, state = self._begin(), cast("JsonValue", self.world.script.environment)
        everything = self._everything()
        for _ in range(steps):
            # Every other walk aims at the goal until it is reached, and wanders on from there.
            there = frozenset(_tuples(answer["literals"]))
            aims = self.aims and not there.issuperset(self.problem.goal)
            aim = partial(self.domain.aim, self.problem, there) if aims else None
            answer, state = self._step(state, choose(_tuples(answer["legal"]), everything, aim, rng, LEGAL))

    def _begin(self) -> dict[str, Any]:
        answer = self.theirs.ask(problem=self.problem.name)
        theirs, where = _tuples(answer["goal"]), self.problem.name
        self.tally.compare("objects", where, ours=sorted(self.problem.objects), theirs=answer["objects"])
        self.tally.compare("goal", where, ours=sorted(self.problem.goal), theirs=theirs)
        self._compare_states(self.world.script.environment, answer, where)
        return answer

    def _step(self, state: JsonValue, action: Literal) -> tuple[dict[str, Any], JsonValue]:
        ruling = self.world.step(state, self.domain.text(action))
        answer = self.theirs.ask(action=action)
        where, tally = f"{self.problem.name}, {' '.join(action)}", self.tally
        tally.steps += 1
        tally.accepted += answer["accepted"]
        tally.reached += ruling.done
        tally.compare("legality", where, ours=ruling.kind is None, theirs=answer["accepted"])
        tally.compare("faults of the rulebook", where, ours=ruling.problem, theirs=None)
        tally.compare("goal reached", where, ours=ruling.done, theirs=answer["done"])
        self._compare_states(ruling.state, answer, where)
        return answer, ruling.state

    def _compare_states(self, state: JsonValue, answer: dict[str, Any], where: str) -> None:
        """Compare all literals, the goal's among them, and what is legal."""
        fixed = {literal for literal in self.problem.initial if literal[0] in self.domain.fixed}
        here, there = {*self.domain.literals(state), *fixed}, set(_tuples(answer["literals"]))
        self.tally.compare("literals", where, ours=sorted(here - there), theirs=sorted(there - here))
        held, wanted = sum(literal in there for literal in self.problem.goal), len(self.problem.goal)
        self.tally.compare("goal literals", where, ours=self.world.progress(state), theirs=held / wanted)
        listed = set(_tuples(answer["legal"]))
        for action in self.possible if self.tally.steps % LISTED_EVERY == 0 else sorted(listed):
            legal = self.world.step(state, self.domain.text(action)).kind is None
            self.tally.listed += 1
            self.tally.compare(
                "list of legal actions", f"{where}; {' '.join(action)}", ours=legal, theirs=action in listed
            )

    def _everything(self) -> list[Literal]:
        """Every operator with every combination of objects, of whatever sort."""
        return [
            (name, *objects)
            for name, arity in self.domain.arities.items()
            for objects in product(sorted(self.problem.objects), repeat=arity)
        ]


def _tuples(literals: Iterable[list[str]]) -> list[Literal]:
    return [tuple(literal) for literal in literals]
