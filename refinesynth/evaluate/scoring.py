"""The score of an episode: success, progress, and how the agent deals with its failures."""

from math import nan
from typing import Any, cast

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from refinesynth.evaluate.agent import RESULT
from refinesynth.evaluate.measures import SCORE, Counts


@scorer(metrics={"*": [mean(), stderr()]}, name=SCORE)
def episode() -> Scorer:
    """Value: `success` (0 or 1), `progress` (0 to 1), the environment's own measures, and the episode's rates; NaN, which
    Inspect takes for unscored, where nothing happened that a rate could be taken of.

    Metadata: `counts`, the fields of `Counts`, to be summed; `stopped`, `attempts`, `faults` and the instance's `level`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        del target
        found: dict[str, Any] = state.store.get(RESULT)
        counts = cast("dict[str, int]", found["counts"])
        rates = {name: nan if rate is None else rate for name, rate in Counts(**counts).rates.items()}
        value = {"success": found["success"], "progress": found["progress"], **found["measures"], **rates}
        kept = {name: found[name] for name in ("counts", "stopped", "attempts", "faults")}
        return Score(
            value=value,
            answer=f"{100 * found['progress']:.0f} % in {counts['turns']} turns",
            explanation=f"ended by: {found['stopped']}",
            metadata={**kept, "level": state.metadata.get("level", "")},
        )

    return score
