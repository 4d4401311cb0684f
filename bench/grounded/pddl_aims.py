"""Simple players that reach the goals of the two domains, so that walks do not only wander."""

from collections.abc import Callable
from random import Random

from bench.grounded.pddl_files import Literal, Problem

Aim = Callable[[Problem, frozenset[Literal]], Literal]
"""A legal action that leads towards a problem's goal, in a state given by its literals, where the goal is not
reached."""


def stack_up(problem: Problem, literals: frozenset[Literal]) -> Literal:
    """In the blocks world: put towers down block by block, and build the goal's from below."""
    wanted = {each[1]: each[2] for each in problem.goal if each[0] == "on"}
    on = {each[1]: each[2] for each in literals if each[0] == "on"}
    clear = sorted(each[1] for each in literals if each[0] == "clear")

    def settled(block: str) -> bool:
        """Whether it and all below it stand where they are to stay."""
        if wanted.get(block) != on.get(block):
            return False
        return block not in on or settled(on[block])

    held = next((each[1] for each in literals if each[0] == "holding"), None)
    if held is not None:
        base = wanted.get(held)
        return ("stack", held, base) if base in clear and settled(base) else ("putdown", held)
    for block in clear:
        base = wanted.get(block)
        if not settled(block) and base in clear and settled(base):
            return ("unstack", block, on[block]) if block in on else ("pickup", block)
    return next(("unstack", block, on[block]) for block in clear if block in on and not settled(block))


def carry_over(problem: Problem, literals: frozenset[Literal]) -> Literal:
    """In gripper: pick up what is in the wrong room, go where it belongs, put it down."""
    wanted = {each[1]: each[2] for each in problem.goal if each[0] == "at"}
    at = {each[1]: each[2] for each in literals if each[0] == "at"}
    carried = sorted((each[1], each[2]) for each in literals if each[0] == "carry")
    free = sorted(each[1] for each in literals if each[0] == "free")
    here = next(each[1] for each in literals if each[0] == "at-robby")
    for ball, gripper in carried:
        if wanted.get(ball, here) == here:
            return ("drop", ball, here, gripper)
    wrong = sorted(ball for ball, room in at.items() if wanted.get(ball, room) != room)
    if free and (ball := next((each for each in wrong if at[each] == here), None)):
        return ("pick", ball, here, free[0])
    return ("move", here, wanted[carried[0][0]] if carried else at[wrong[0]])


def choose(
    legal: list[Literal], everything: list[Literal], aim: Callable[[], Literal] | None, rng: Random, share: float
) -> Literal:
    """With probability `share` a legal action, the one that is aimed at most of the time if there is an aim; else any
    at all."""
    if not legal or rng.random() >= share:
        return rng.choice(everything)
    return aim() if aim is not None and rng.random() < 0.8 else rng.choice(legal)
