"""The public types, pinned: the type checker reads this file and nothing runs it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import refinesynth as rs
import refinesynth.train as rt
from refinesynth.backends import Role
from refinesynth.episode import EpisodeContext, EpisodeSettings, Play, Turns
from refinesynth.episode.live import Live
from refinesynth.roles import Player
from refinesynth.rules import All, Either, FirstFailure, Not, Rule, Verdict, Violation


async def synthesis() -> None:
    result = await rs.synthesize("personas.jsonl", n=32_000, backend="deepseek", output="runs/first")
    assert_type(result, rs.SynthesisResult)
    for trajectory in result:
        assert_type(trajectory, rs.Trajectory)
        assert_type(trajectory.turns[0], rs.PlayerTurn | rs.DungeonMasterTurn)
    for refused in result.rejected:
        assert_type(refused, rs.Refused)
    assert_type(result.by_rule, Counter[str])
    assert_type(result.usage, rs.Usage)
    assert_type(result.cost_usd, float | None)
    assert_type(result.cost_per_accepted, float | None)
    assert_type(result.wasted_by_rule, dict[str, rs.Cost])
    assert_type(await rs.estimate(n=32_000, backend="deepseek", sample=20), rs.Estimate)
    await rs.synthesize(n=1, play="mine", budget="50usd")
    await rs.synthesize(n=1, budget=rs.Budget(usd=50, tokens=20_000_000))
    assert_type(result.path, Path)
    await rs.synthesize(
        ["a nurse"], n=1, backend={"default": "gpt-4o", "player": rs.Backend(model="hosted_vllm/qwen3-8b")}
    )
    await rs.synthesize(n=1, rules=rs.rules.strict() & MyRule(), on_progress=on_progress)
    await rs.synthesize(n=1, rules="strict() & MyRule()")


async def runs_and_evaluations() -> None:
    assert_type(await rs.merge(["runs/first", "runs/second"], "runs/both"), rs.Merged)
    result = rs.evaluate("models/first", tasks="held-out", data="data", epochs=10, temperature=1.0)
    assert_type(result, rs.EvaluationResult)
    assert_type(result.scores[0].success, float | None)
    assert_type(rs.compare(["evals/base", "evals/first"], paper=True).warnings, Sequence[str])


def on_progress(progress: rs.Progress) -> None:
    assert_type(progress.accepted, int)


@dataclass(frozen=True)
class MyRule(rs.rules.BaseRule):
    limit: int = 3

    def __call__(self, draft: rs.Draft, /) -> Iterator[Violation]:
        if len(draft.turns) > self.limit:
            yield self.violation(self.limit, "too_long", "Write fewer turns.")


class MyPlay(Play):
    name = "mine"

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        return (Role.PLAYER,) if settings.grounding.terse else super().voices(settings)

    async def play(self, cast: EpisodeContext, script: rs.Script, start: Turns = ()) -> rs.Draft | None:
        assert_type(cast.actor(Player, Role.PLAYER), Player)
        assert_type(await cast.verifier.verify(rs.Draft(script=script, turns=start)), Verdict)
        return await Live(cast, script).play(start)


def a_function_is_a_rule(draft: rs.Draft, /) -> Iterator[Violation]:
    yield from MyRule()(draft)


def algebra(draft: rs.Draft, trajectory: rs.Trajectory) -> None:
    assert_type(rs.rules.agentrefine(), FirstFailure)
    assert_type(rs.rules.strict(), All)
    assert_type(rs.rules.grounded(min_refinements=2, within=3, max_turns=100), All)
    assert_type(rs.rules.grounded_script(difficulty=(4, 12)), All)
    assert_type(rs.rules.agentrefine() & MyRule(), All)
    assert_type(a_function_is_a_rule & rs.rules.strict(), All)
    assert_type(MyRule() | rs.rules.strict(), Either)
    assert_type(~MyRule(), Not)
    assert_type(rs.rules.parse("strict()"), Rule)
    assert_type(rs.rules.verify(draft, rs.rules.strict()), Verdict)
    assert_type(trajectory.draft(), rs.Draft)
    assert_type(rs.chat.to_messages(trajectory)[0].loss, bool)


def training() -> None:
    trainer = rt.Trainer(
        model="Qwen/Qwen3-8B",
        data=["runs/first", Path("first.jsonl")],
        output=Path("models/first"),
        recipe="lora",
        epochs=3,
    )
    assert_type(trainer, rt.Trainer)
    assert_type(trainer.config, rt.TrainConfig)
    assert_type(trainer.config.data, tuple[str, ...])
    assert_type(trainer.config.lora, rt.LoraConfig | None)
    assert_type(trainer.config.loss_on, rt.LossOn)
    assert_type(trainer.plan(), rt.Plan)
    assert_type(trainer.plan().steps, int)
    assert_type(trainer.preview(3)[0].trained_share, float)
    result = trainer.train(events=Heard())
    assert_type(result, rt.TrainResult)
    assert_type(result.output, Path)
    assert_type(result.loss, float)
    assert_type(result.held_out, Mapping[str, float])
    assert_type(result.best_step, int | None)
    assert_type(result.signal, int | None)
    rt.Trainer(model="m", data=[("runs/first", 1), ("runs/second", 0.3)], output="models/first")
    written = rt.write_tokens(["runs/first:0.5"], "tokens.jsonl", model=Path("models/tiny"), max_length=4096)
    assert_type(written, rt.TokenFile)
    assert_type(written.counts.trained_tokens, int)
    config = rt.TrainConfig(data=("runs/first",), model="models/tiny", output="models/first", seed=1)
    assert_type(rt.layered(recipe="smoke", given=config.model_dump()), rt.Layered)


class Heard:
    """Whoever wants to hear how a training goes on inherits nothing."""

    def planned(self, plan: rt.Plan) -> None: ...

    def logged(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def saved(self, path: Path) -> None: ...

    def note(self, text: str) -> None: ...
