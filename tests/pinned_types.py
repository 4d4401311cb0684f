"""The public types, pinned: the type checker reads this file and nothing runs it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import refinesynth as rs
from refinesynth.rules import All, Either, FirstFailure, Not, Rule, Verdict, Violation


async def synthesis() -> None:
    result = await rs.synthesize("personas.jsonl", n=32_000, backend="deepseek", output="runs/first")
    assert_type(result, rs.SynthesisResult)
    for trajectory in result:
        assert_type(trajectory, rs.Trajectory)
        assert_type(trajectory.turns[0], rs.PlayerTurn | rs.DungeonMasterTurn)
    for refused in result.rejected:
        assert_type(refused, rs.Refused)
    assert_type(result.violations, Counter[str])
    assert_type(result.usage, rs.Usage)
    assert_type(result.cost_usd, float | None)
    assert_type(result.cost_per_accepted, float | None)
    assert_type(result.wasted_by_rule, dict[str, rs.Spent])
    assert_type(await rs.estimate(n=32_000, backend="deepseek", sample=20), rs.Estimate)
    await rs.synthesize(n=1, budget="50usd")
    await rs.synthesize(n=1, budget=rs.Budget(usd=50, tokens=20_000_000))
    assert_type(result.path, Path)
    await rs.synthesize(
        ["a nurse"], n=1, backend={"default": "gpt-4o", "player": rs.Backend(model="hosted_vllm/qwen3-8b")}
    )
    await rs.synthesize(n=1, rules=rs.rules.strict() & MyRule(), on_progress=on_progress)
    await rs.synthesize(n=1, rules="strict() & MyRule()")
    async with rs.stream(["a nurse"], n=1) as trajectories:
        async for trajectory in trajectories:
            assert_type(trajectory, rs.Trajectory)


def on_progress(progress: rs.Progress) -> None:
    assert_type(progress.accepted, int)


@dataclass(frozen=True)
class MyRule(rs.rules.BaseRule):
    limit: int = 3

    def __call__(self, draft: rs.Draft, /) -> Iterator[Violation]:
        if len(draft.turns) > self.limit:
            yield self.violation(self.limit, "too_long", "Write fewer turns.")


def a_function_is_a_rule(draft: rs.Draft, /) -> Iterator[Violation]:
    yield from MyRule()(draft)


def algebra(draft: rs.Draft, trajectory: rs.Trajectory) -> None:
    assert_type(rs.rules.agentrefine(), FirstFailure)
    assert_type(rs.rules.strict(), All)
    assert_type(rs.rules.agentrefine() & MyRule(), All)
    assert_type(a_function_is_a_rule & rs.rules.strict(), All)
    assert_type(MyRule() | rs.rules.strict(), Either)
    assert_type(~MyRule(), Not)
    assert_type(rs.rules.parse("strict()"), Rule)
    assert_type(rs.rules.verify(draft, rs.rules.strict()), Verdict)
    assert_type(trajectory.draft(), rs.Draft)
    assert_type(rs.chat.to_messages(trajectory)[0].loss, bool)
