"""`synthesize`: from personas to a run folder of accepted trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from anyio import get_cancelled_exc_class

from refinesynth.attempts import DEADLINE, Attempts
from refinesynth.curation import Curation
from refinesynth.grounding import Grounding
from refinesynth.mistakes import Mistakes
from refinesynth.personas import PersonaSource
from refinesynth.synthesis.patience import PATIENCE
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.tracing import Tracing

if TYPE_CHECKING:
    from refinesynth.backends import Backend, BackendSpec, Completion
    from refinesynth.client.budget.budget import Budget
    from refinesynth.rules import Rule

CONCURRENCY = 16
"""Most episodes in flight, unless another number is asked for."""


async def synthesize(
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: "BackendSpec" = "rehearsal",
    *,
    play: str = "live",
    rules: "Rule | str | None" = None,
    script_rules: "Rule | str | None" = None,
    mistakes: Mistakes | None = None,
    attempts: Attempts | None = None,
    grounding: Grounding | None = None,
    branches: int = 1,
    episodes_per_script: int = 1,
    curation: Curation | None = None,
    output: str | PathLike[str] | None = None,
    concurrency: int = CONCURRENCY,
    seed: int = 0,
    prompts: str | PathLike[str] | None = None,
    judge: bool = False,
    max_turns: int | None = None,
    fresh: bool = False,
    budget: "Budget | str | None" = None,
    patience: int = PATIENCE,
    fallback: "str | Backend | None" = None,
    deadline: float | None = DEADLINE,
    processes: int = 1,
    log_level: str = "info",
    tracing: Tracing | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    call: "Completion | None" = None,
) -> SynthesisResult:
    """Start personas until `n` trajectories are accepted, the personas run out, or `patience` does (`SynthesisResult.ended` says so).

    Trajectories are in the order of the personas. The same personas, seed and deterministic backend give the same bytes in
    trajectories.jsonl and rejected.jsonl, whatever the concurrency. Memory grows with `concurrency`, not with `n`.

    A run that was cancelled or killed, at whatever instant, goes on when it is asked for again with the same `output`: no
    accepted trajectory is lost or written twice, and no completion is paid for twice but those that were in flight.
    Settings that would change the data must be the same then; `n`, `concurrency`, `budget`, `patience` and how servers are
    reached may differ.

    Args:
        personas: A path (.jsonl, .csv, .parquet, .txt, also .gz and .zst), an iterable or async iterable, a Hugging Face
            dataset, of texts or `Persona`s or rows with `persona` or `text`; None for those that ship with the package.
        n: Accepted trajectories to make. A run ends when at least so many are accepted; an episode that brings more than was missing
            is kept whole, so there may be up to `branches * episodes_per_script - 1` more.
        backend: A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`;
            there, a list for a role whose models take turns.
        play: `live`: DungeonMaster and Player converse; `narrated`: one call writes both voices, as the paper does; `grounded`:
            as live, and the world is executed by the rulebook that the script comes with; or the name of a play that an installed
            package registers.
        rules: What a draft must satisfy, as a rule or as text for `rules.parse`; None for the play's: `rules.strict()`, in
            grounded play `rules.grounded()`.
        script_rules: What a script must satisfy; None for the play's: `rules.script()`, in grounded play
            `rules.grounded_script()`.
        mistakes: Where mistakes come from; None for at least two, asked for where natural ones do not suffice.
        attempts: How often an episode may try again.
        grounding: How grounded play is played; for it alone.
        branches: Trajectories to make of each play that is accepted: itself, and others that go on differently from a verified
            part of it.
        episodes_per_script: Plays of each script that is accepted.
        curation: Near-duplicates and contamination that are looked for in what the rules accepted; None for neither.
        output: The run folder. A run that is there is continued, with the same personas in the same order; more may follow at
            their end. None for the next free `runs/NNN` under the current folder.
        concurrency: Most episodes in flight.
        seed: Of the run; each episode's own seed is derived from it.
        prompts: Folder with prompt templates that replace shipped ones of the same name.
        judge: Whether an LLM judge must agree to what the rules accept.
        max_turns: Longest draft, in turns; None for the default.
        fresh: Begin anew. A run that is in `output` is kept beside it, as `NAME.old-1` or the next free number.
        budget: What may be spent in all, such as `"50usd"` or `"20Mtok"`: a hard stop, which the total passes by less than one
            request. The run then ends as when its personas run out, and goes on with a higher one.
        patience: Finished episodes without one accepted after which the run stops early. So it does once as many have ended, in the
            first half of what personas and budget allow, where at the yield so far `n` is out of reach of the two. What
            decides is the order in which outcomes are committed. 0 goes on to the end; so does the same call with 0 later.
        fallback: A second backend, asked while the first is down or cannot be asked any more; back to the first when it is
            there again. Which one answered is in each trajectory's provenance.
        deadline: Seconds that an episode may take before it is given up, the time not counted in which its backend is down;
            None for no end.
        processes: How many processes play, each on a core; rules, prompts and `call` must be such that they can be pickled.
            One budget and one rate limit hold for all, and the files are the same as with one.
        log_level: How much events.jsonl holds: `debug` (every completion), `info`, `warning` or `error`.
        tracing: OpenTelemetry spans that are wanted of episodes, attempts and requests; None for none.
        on_progress: Called with each change, on the event loop; what it raises ends the run and is raised here.
        call: Completion function of all backends instead of their own, in the form of `litellm.acompletion`.

    Raises:
        InputError: Something that was given cannot be used; its subclass `RunFolderError` where it is the folder, which may
            also be in use by another process.
        StorageError: The folder cannot be written, or its journal cannot be read. What was finished is on disk.
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
        grounding=grounding,
        branches=branches,
        episodes_per_script=episodes_per_script,
        curation=curation,
        output=output,
        concurrency=concurrency,
        seed=seed,
        prompts=prompts,
        judge=judge,
        max_turns=max_turns,
        fresh=fresh,
        budget=budget,
        patience=patience,
        fallback=fallback,
        deadline=deadline,
        processes=processes,
        log_level=log_level,
        tracing=tracing,
        on_progress=on_progress,
        call=call,
    )
    async with request.begin() as run:
        try:
            await run.pool.run()
        except get_cancelled_exc_class() as error:
            # In a notebook this ends what an interrupted cell shows.
            place = str(run.folder.path)
            error.add_note(f"What was finished is in {place!r}; the same call with output={place!r} goes on with it.")
            raise
    return run.result()
