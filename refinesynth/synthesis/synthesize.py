"""`synthesize`: a run from personas to a folder of accepted trajectories."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from anyio import get_cancelled_exc_class

from refinesynth.backends import Backend, BackendSpec, Completion
from refinesynth.client.budget.budget import Budget
from refinesynth.personas import PersonaSource
from refinesynth.rules import Rule
from refinesynth.run.run_folder import ScriptSource
from refinesynth.settings import Attempts, Curation, Grounding, Mistakes, RunSettings, Shard
from refinesynth.settings.run import DEADLINE, EARLY_STOP
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request, described_by
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.setup import begin


@described_by(RunSettings)
async def synthesize(  # noqa: D417 - the settings are described at their fields
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: BackendSpec = "rehearsal",
    *,
    column: str | None = None,
    scripts: ScriptSource | None = None,
    tools: str | PathLike[str] | Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
    mcp: str | None = None,
    allow_tool: Sequence[str] = (),
    real: bool = False,
    real_state: str | None = None,
    play: str = "live",
    rules: Rule | str | None = None,
    script_rules: Rule | str | None = None,
    player_form: Literal["react", "tools"] = "react",
    parallel_calls: bool = False,
    match: Literal["strict", "lenient"] = "strict",
    mistakes: Mistakes | str | None = None,
    repairer: Literal["model", "planner"] | None = None,
    repair_turns: int | Literal["until"] = 1,
    attempts: Attempts | str | None = None,
    grounding: Grounding | None = None,
    branches: int = 1,
    episodes_per_script: int = 1,
    curation: Curation | None = None,
    output: str | PathLike[str] | None = None,
    concurrency: int | Literal["auto"] = "auto",
    seed: int = 0,
    shard: Shard | str | None = None,
    prompts: str | PathLike[str] | None = None,
    judge: bool = False,
    max_turns: int | None = None,
    fresh: bool = False,
    budget: Budget | str | None = None,
    early_stop: int = EARLY_STOP,
    fallback: str | Backend | None = None,
    deadline: float | None = DEADLINE,
    batch: bool = False,
    workers: int = 1,
    cluster: str | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    on_progress: Callable[[Progress], None] | None = None,
    call: Completion | None = None,
) -> SynthesisResult:
    """Start personas until `n` trajectories are accepted, the personas run out, or the first `early_stop` episodes give none.

    `SynthesisResult.ended` states the reason of an end before `n`. Trajectories are in the order of the personas. The
    same personas, seed and deterministic backend give the same bytes in trajectories.jsonl and rejected.jsonl, at any
    concurrency. Memory grows with the episodes in flight, not with `n`.

    The same call with the same `output` resumes a run that was cancelled or killed at any instant: no accepted
    trajectory is lost or written twice, and only completions that were in flight are paid for twice. Settings that would
    change the data must not differ; `n`, `concurrency`, `budget`, `early_stop` and connection settings may.

    Args:
        fresh: Start over. A run that is in `output` is kept beside it, as `NAME.old-1` or the next free number.
        on_progress: Called with each change, on the event loop; what it raises ends the run and is raised here.
        call: Completion function of all backends instead of their own, in the form of `litellm.acompletion`. What it
            costs is known only where the backends give their prices (`input_price`, `output_price`).

    Raises:
        InputError: An argument cannot be used. The subclass `RunFolderError` is for the folder, which another process may
            use.
        StorageError: The folder cannot be written, or its journal cannot be read. Finished episodes are on disk.
        RunStopped: No episode can continue (authentication, unknown model, quota). Finished episodes are on disk.
    """
    arguments = locals()
    async with begin(Request.of(arguments)) as run:
        try:
            await run.pool.run()
        except get_cancelled_exc_class() as error:
            # A notebook shows the note below the traceback of an interrupted cell.
            folder = str(run.folder.path)
            error.add_note(f"What was finished is in {folder!r}; the same call with output={folder!r} goes on with it.")
            raise
    return run.result()
