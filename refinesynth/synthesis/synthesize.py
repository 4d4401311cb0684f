"""`synthesize`: from personas to a run folder of accepted trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Literal

from anyio import get_cancelled_exc_class

from refinesynth.client.tracing import Tracing
from refinesynth.personas import PersonaSource
from refinesynth.settings import Attempts, Curation, Grounding, Mistakes
from refinesynth.settings.run import DEADLINE, EARLY_STOP
from refinesynth.synthesis.configured import configured
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.setup import begin

if TYPE_CHECKING:
    from refinesynth.backends import Backend, BackendSpec, Completion
    from refinesynth.client.budget.budget import Budget
    from refinesynth.rules import Rule
    from refinesynth.run.scripts import ScriptSource
    from refinesynth.settings import Shard


@configured
async def synthesize(
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: "BackendSpec" = "rehearsal",
    *,
    column: str | None = None,
    scripts: "ScriptSource | None" = None,
    config: str | PathLike[str] | None = None,
    play: str = "live",
    rules: "Rule | str | None" = None,
    script_rules: "Rule | str | None" = None,
    player_form: Literal["react", "tools"] = "react",
    mistakes: Mistakes | None = None,
    attempts: Attempts | None = None,
    grounding: Grounding | None = None,
    branches: int = 1,
    episodes_per_script: int = 1,
    curation: Curation | None = None,
    output: str | PathLike[str] | None = None,
    concurrency: int | Literal["auto"] = "auto",
    seed: int = 0,
    shard: "Shard | str | None" = None,
    prompts: str | PathLike[str] | None = None,
    judge: bool = False,
    max_turns: int | None = None,
    fresh: bool = False,
    budget: "Budget | str | None" = None,
    early_stop: int = EARLY_STOP,
    fallback: "str | Backend | None" = None,
    deadline: float | None = DEADLINE,
    batch: bool = False,
    workers: int = 1,
    cluster: str | None = None,
    journals: str | PathLike[str] | None = None,
    log_level: str = "info",
    tracing: Tracing | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress: bool = False,
    call: "Completion | None" = None,
) -> SynthesisResult:
    """Start personas until `n` trajectories are accepted, the personas run out, or `early_stop`
    episodes gave none (`SynthesisResult.ended` says so).

    Trajectories are in the order of the personas. The same personas, seed and deterministic backend give the same bytes
    in trajectories.jsonl and rejected.jsonl, at any concurrency. Memory grows with the episodes in flight, not with `n`.

    A run that was cancelled or killed, at any instant, is resumed when it is asked for again with the same `output`: no
    accepted trajectory is lost or written twice, and no completion is paid for twice but those that were in flight.
    Settings that would change the data must be the same then; `n`, `concurrency`, `budget`, `early_stop` and how servers
    are reached may differ.

    Args:
        personas: A path (.jsonl, .json, .csv, .tsv, .parquet, .txt, also .gz and .zst; `-` for standard input), an iterable or async iterable, a Hugging
            Face dataset, of texts or `Persona`s or rows with `persona` or `text`; None for those that ship with the
            package.
        n: Accepted trajectories to make. A run ends when at least so many are accepted; an episode that brings more
            than was missing is kept whole, so there may be up to `branches * episodes_per_script - 1` more.
        backend: A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`;
            there, a list for a role whose models take turns.
        column: Where in the rows of a file of personas they stand; None for `persona` or `text`.
        scripts: A run folder, or a file of trajectories, whose scripts are played again, each once, instead of personas
            for which scripts are written: with a tuned model as player its own mistakes become data.
        config: A YAML or JSON file with any of these settings by name; what is given as an argument counts before it.
        play: `live`, `narrated`, `grounded`, or the name of a play that an installed package registers. What each of
            the settings from here to `log_level` decides, its unit and its default stand at the fields of
            `RunSettings`.
        rules: None for those of the play: `rules.strict()`, in grounded play `rules.grounded()`.
        script_rules: None for those of the play: `rules.script()`, in grounded play `rules.grounded_script()`.
        player_form: `tools` asks the Player with native tool calls instead of text.
        mistakes: None for `spread`: two on average, evenly over the play, none in a fifth of the trajectories.
        attempts: How often an episode may try again.
        grounding: How grounded play is played; for it alone.
        branches: Trajectories of each accepted play.
        episodes_per_script: Plays of each accepted script.
        curation: Near-duplicates and contamination to look for; None for neither.
        output: The run folder. A run that is there is continued, with the same personas in the same order; more may
            follow at their end. A URL (`s3://`, `gs://`, `az://`) keeps it in an object store as it goes on; see
            docs/stores.md. None for the next free `runs/NNN` under the current folder.
        concurrency: Most episodes in flight; `auto` begins more as the servers have room.
        seed: Of the run.
        shard: `"I/N"`, such as `"3/8"`: one of N runs, counted from 0, that share the personas and `n` and are put
            together by `refinesynth merge`. Budget and rate limits are this run's own.
        prompts: Folder with prompt templates that replace shipped ones of the same name.
        judge: Whether an LLM judge must agree to what the rules accept.
        max_turns: Longest draft, in turns; None for the default.
        fresh: Start over. A run that is in `output` is kept beside it, as `NAME.old-1` or the next free number.
        budget: A hard stop, such as `"50usd"` or `"20Mtok"`, which the total passes by less than one request. The run
            then ends as when its personas run out, and goes on with a higher one.
        early_stop: Finished episodes without one accepted after which the run stops early. The order in which outcomes
            are committed decides. 0 goes on to the end; so does the same call with 0 later.
        fallback: A second backend, asked while the first is down or cannot be asked any more; back to the first when it
            is there again. Which one answered is in each trajectory's provenance.
        deadline: Seconds that an episode may take; None for no end.
        batch: Whether the ScriptWriter and the Narrator are asked in the provider's batches, at half the price.
        workers: How many processes play; with more than one, on Ray, rules and `call` must be such that they can be
            pickled.
        cluster: The Ray cluster on which they are; None for this machine.
        journals: A folder on each worker's machine for what it has paid for; None for `output`.
        log_level: How much events.jsonl holds: `debug` (every completion), `info`, `warning` or `error`.
        tracing: OpenTelemetry spans that are wanted of episodes, attempts and requests; None for none.
        on_progress: Called with each change, on the event loop; what it raises ends the run and is raised here.
        progress: Show the counts below the cell of a notebook, if there is no `on_progress`.
        call: Completion function of all backends instead of their own, in the form of `litellm.acompletion`.

    Raises:
        InputError: Something that was given cannot be used; its subclass `RunFolderError` where it is the folder, which
            may also be in use by another process.
        StorageError: The folder cannot be written, or its journal cannot be read. What was finished is on disk.
        RunStopped: No episode can go on (authentication, unknown model, quota). What was finished is on disk.
    """
    asked = locals()
    async with begin(Request.of(asked)) as run:
        try:
            await run.pool.run()
        except get_cancelled_exc_class() as error:
            # In a notebook this ends what an interrupted cell shows.
            place = str(run.folder.path)
            error.add_note(f"What was finished is in {place!r}; the same call with output={place!r} goes on with it.")
            raise
    return run.result()
