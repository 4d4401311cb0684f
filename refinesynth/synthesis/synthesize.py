"""`synthesize`: from personas to a run folder of accepted trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Literal

from refinesynth.attempts import Attempts
from refinesynth.mistakes import Mistakes
from refinesynth.personas import PersonaSource
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult

if TYPE_CHECKING:
    from refinesynth.backends import BackendSpec, Completion
    from refinesynth.rules import Rule


async def synthesize(
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: "BackendSpec" = "rehearsal",
    *,
    play: Literal["live", "narrated"] = "live",
    rules: "Rule | str | None" = None,
    script_rules: "Rule | str | None" = None,
    mistakes: Mistakes | None = None,
    attempts: Attempts | None = None,
    output: str | PathLike[str] | None = None,
    concurrency: int = 16,
    seed: int = 0,
    prompts: str | PathLike[str] | None = None,
    judge: bool = False,
    max_turns: int | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    call: "Completion | None" = None,
) -> SynthesisResult:
    """Start personas until `n` trajectories are accepted, or the personas run out (`SynthesisResult.shortfall` says so).

    Trajectories are in the order of the personas. The same personas, seed and deterministic backend give the same bytes in
    trajectories.jsonl, rejected.jsonl and episodes.jsonl, whatever the concurrency. Memory grows with `concurrency`, not
    with `n`. Cancellation (Ctrl-C) ends the run at once, with everything that was finished on disk, to be resumed.
    Not promised: that a run which is killed loses none of what it has paid for.

    Args:
        personas: A path (.jsonl, .csv, .parquet, .txt, also .gz and .zst), an iterable or async iterable, a Hugging Face
            dataset, of texts or `Persona`s or rows with `persona` or `text`; None for those that ship with the package.
        n: Accepted trajectories to make.
        backend: A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`.
        play: `live`: DungeonMaster and Player converse; `narrated`: one call writes both voices, as the paper does.
        rules: What a draft must satisfy, as a rule or as text for `rules.parse`; None for `rules.strict()`.
        script_rules: What a script must satisfy; None for `rules.script()`.
        mistakes: Where mistakes come from; None for at least two, asked for where natural ones do not suffice.
        attempts: How often an episode may try again.
        output: The run folder, new or empty; None for the next free `runs/NNN` under the current folder.
        concurrency: Most episodes in flight.
        seed: Of the run; each episode's own seed is derived from it.
        prompts: Folder with prompt templates that replace shipped ones of the same name.
        judge: Whether an LLM judge must agree to what the rules accept.
        max_turns: Longest draft, in turns; None for the default.
        resume: Go on with the run in `output`. Finished personas are skipped; `n` and `concurrency` may differ.
        on_progress: Called with each change, on the event loop; what it raises ends the run and is raised here.
        call: Completion function of all backends instead of their own, in the form of `litellm.acompletion`.

    Raises:
        InputError: Something that was given cannot be used; its subclass `RunFolderError` where it is the folder.
        RunStopped: No episode can go on (authentication, unknown model, quota). What was finished is on disk.
    """
    request = Request(
        personas=personas,
        n=n,
        backend=backend,
        play=play,
        rules=rules,
        script_rules=script_rules,
        mistakes=mistakes,
        attempts=attempts,
        output=output,
        concurrency=concurrency,
        seed=seed,
        prompts=prompts,
        judge=judge,
        max_turns=max_turns,
        resume=resume,
        on_progress=on_progress,
        call=call,
    )
    async with request.begin() as run:
        await run.pool.run()
    return run.result()
