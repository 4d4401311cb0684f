"""Scripts played by a tuned model, as `refinesynth run --scripts` has them played."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import torch

import refinesynth as rs
from bench.ablation.evaluation import MOST_TOKENS
from bench.ablation.generating import Generating
from bench.ablation.playing import MOST_ACTIONS
from bench.ablation.worlds import scene_of
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import natural
from refinesynth.trajectory import ScriptedPersona

_IN_FLIGHT = 128
"""Scripts that are played at once: the batch of the model."""


def play_scripts(model: Path, names: Sequence[str], run: Path, *, seed: int, repairer: str | None = None) -> Path:
    """Play the scenes of these names once each, at temperature 1; the file of what the rules accepted.

    Nobody asks the player for mistakes; what reaches the goal is kept, and a play that does not is not tried again. The
    repairer, such as `planner`, takes the turn behind each mistake.
    """
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    player = Generating(model)

    async def call(**request: Any) -> dict[str, Any]:
        said = await player.say(request["messages"], temperature=1.0, most=MOST_TOKENS)
        return {
            "choices": [{"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }

    async def played() -> Path:
        result = await rs.synthesize(
            scripts=[ScriptedPersona(text=name, script=scene_of(name).script) for name in names],
            n=len(names),
            play="grounded",
            grounding=rs.Grounding(terse=True),
            mistakes=natural(),
            # Not `ActionsUsable`: where no place is shut, the verb that opens one is of no use.
            script_rules=rs.rules.script(),
            # Not those of grounded play: what is repaired late, or tried again, is what there is to learn from.
            rules=rs.rules.agentrefine(0) & rs.rules.Replays(),
            attempts=Attempts(drafts=1),
            max_turns=2 * MOST_ACTIONS,
            early_stop=0,
            concurrency=_IN_FLIGHT,
            output=run,
            seed=seed,
            backend={"default": "openai/tiny"} | ({"repairer": repairer} if repairer else {}),
            call=call,
        )
        return result.path / "trajectories.jsonl"

    return anyio.run(played)
