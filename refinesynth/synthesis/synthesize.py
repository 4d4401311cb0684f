"""`synthesize`: from personas to a run folder of accepted trajectories."""

from collections.abc import Callable
from os import PathLike
from typing import Literal

from anyio import get_cancelled_exc_class

from refinesynth.backends import Backend, BackendSpec, Completion
from refinesynth.client.budget.budget import Budget
from refinesynth.client.tracing import Tracing
from refinesynth.personas import PersonaSource
from refinesynth.rules import Rule
from refinesynth.run.folder import ScriptSource
from refinesynth.settings import Attempts, Curation, Grounding, Mistakes, Shard
from refinesynth.settings.run import DEADLINE, EARLY_STOP
from refinesynth.synthesis.configured import configured
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.setup import begin


@configured
async def synthesize(
    personas: PersonaSource | None = None,
    n: int = 100,
    backend: BackendSpec = "rehearsal",
    *,
    column: str | None = None,
    scripts: ScriptSource | None = None,
    config: str | PathLike[str] | None = None,
    play: str = "live",
    rules: Rule | str | None = None,
    script_rules: Rule | str | None = None,
    player_form: Literal["react", "tools"] = "react",
    mistakes: Mistakes | str | None = None,
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
    tracing: Tracing | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress: bool = False,
    call: Completion | None = None,
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
        personas: A path (.jsonl, .json, .csv, .tsv, .parquet, .txt, also .gz and .zst; `-` for standard input), an
            iterable or async iterable, a Hugging Face dataset; None for those that come with the package.
        n: Accepted trajectories to make. The run ends when at least so many are accepted; an episode that brings more
            than was missing is kept whole.
        backend: A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`;
            there, a list for a role whose models take turns.
        column: Column or field of the persona in a file's rows; by default `persona` or `text`.
        scripts: Run folder, or file of its trajectories, whose scripts are played again, each once, instead of
            writing new ones: by another player, or under other rules. Replaces the personas.
        config: A YAML or JSON file with any of these settings by name; what is given as an argument counts before it.
        play: Play of an episode: `live` (DungeonMaster and Player converse), `narrated` (one call writes both voices,
            as in the paper), `grounded` (as live, and the script's rulebook executes the world), or a registered play
            of another package.
        rules: Rules that a draft must pass, by default strict(), in grounded play grounded(); `refinesynth rules`
            lists them.
        script_rules: Rules that a script must pass, by default script(), in grounded play grounded_script().
        player_form: Form of the Player's requests and answers: `react` (Thought and Action as text) or `tools`
            (native tool calls, one function per action; text where its model takes no tools). Both are recorded
            alike.
        mistakes: Policy for mistakes: spread, spread=2 (1 to 4 on average; the default), natural, prompted,
            prompted=1,4 (player turns from 0) or at_least=2.
        attempts: Tries per persona, any of drafts=4, scripts=3, calls=8, answers=2, separated by commas.
        grounding: Settings of plays with executed worlds.
        branches: Trajectories of each accepted play: itself, and others that continue differently from a verified
            part of it.
        episodes_per_script: Plays of each accepted script.
        curation: Checks of accepted trajectories for near-duplicates and contamination; None for neither.
        output: The run folder, also a URL: s3://, gs:// or az://; by default the next free `runs/NNN`. A run that is
            there is continued, with the same personas in the same order; more may follow at their end.
        concurrency: Most episodes in flight. `auto` begins with 16 and grows while the servers keep up, to at most
            1,024 or a quarter of the memory.
        seed: Seed of the run, 64 bits; each episode's seed is derived from it. The same seed, personas and settings
            give the same files if the backend is deterministic.
        shard: Part of a run that several machines share. `3/8` plays every 8th persona, beginning with the fourth
            (counted from 0), for an 8th of `n`. `refinesynth merge` puts the shards together. Budget and rate limits
            are each shard's own.
        prompts: Folder with your own prompt templates; each replaces the shipped one of the same name.
        judge: Let an LLM judge what the rules accepted; both must accept.
        max_turns: Turns of both voices after which a live play is broken off. Evaluations allow 30 actions.
        fresh: Start over. A run that is in `output` is kept beside it, as `NAME.old-1` or the next free number.
        budget: Hard stop on spending: 50usd, 20Mtok, or 50usd,20Mtok. The total passes it by less than one request
            for each worker. The same run with a higher one continues.
        early_stop: Finished episodes without one accepted after which the run stops early, in the order of their
            commits; 0 goes on to the end.
        fallback: A second backend, asked while the first is down or cannot be asked any more. Each trajectory's
            provenance names the one that answered.
        deadline: Seconds after which an episode is given up; time in which its backend is down does not count. The
            default is far beyond what any but a stuck episode needs.
        batch: Send the ScriptWriter's and the Narrator's requests in OpenAI's or Anthropic's batches: half the price,
            answers within a day. Use it with a large `concurrency`.
        workers: Processes that play, each on one core; budget and rate limits hold for all together. More than one
            need Ray (extra `cluster`), and rules and completion functions that can be pickled.
        cluster: Ray cluster of the workers: `auto`, `HOST:6379` or `ray://HOST:10001`; by default this machine.
        log_level: Least severity of the events in events.jsonl; debug lists every completion.
        tracing: OpenTelemetry spans that are wanted of episodes, attempts and requests; None for none.
        on_progress: Called with each change, on the event loop; what it raises ends the run and is raised here.
        progress: Show the counts below the cell of a notebook, if there is no `on_progress`.
        call: Completion function of all backends instead of their own, in the form of `litellm.acompletion`. What it
            costs is known only where the backends give their prices (`input_price`, `output_price`).

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
