"""What is asked of a run, checked before anything is written or paid for; and the run made ready from it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from refinesynth.attempts import Attempts
from refinesynth.client.budget.budget import Budget
from refinesynth.curation import Curation
from refinesynth.episode import plays
from refinesynth.errors import InputError, RunFolderError
from refinesynth.grounding import Grounding
from refinesynth.mistakes import Mistakes
from refinesynth.personas import BadRow, Personas, PersonaSource, open_personas
from refinesynth.run import RunFolder, RunWriter, next_run_folder
from refinesynth.run.logs import level_of
from refinesynth.synthesis.patience import Patience, Yield
from refinesynth.synthesis.paying import prices_of, tracker_of, what_it_takes
from refinesynth.synthesis.players import Players
from refinesynth.synthesis.pool import Pool
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.recording import record
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.status_probe import StatusProbe
from refinesynth.tracing import Tracing
from refinesynth.trajectory import Trajectory

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from refinesynth.backends import Backend, BackendSpec, Completion
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.diversity import Overlap
    from refinesynth.episode import EpisodeSettings
    from refinesynth.rules import Rule
    from refinesynth.synthesis.curating import Curator

MAX_CONCURRENCY = 100_000
"""Most workers: each is a task with a few kilobytes of its own, before it does anything."""


MAX_PROCESSES = 1_024
"""Most worker processes: more than any machine has cores."""

MAX_BRANCHES = 1_000
"""Most branches, and most plays of one script."""

_TOLD = 5
"""Overlaps with evaluation sets that are written of one trajectory."""

MAX_N = 10**12
"""Most trajectories that can be asked for; far beyond what any disk holds, and exact as a float in every forecast."""


@dataclass(frozen=True)
class Begun:
    """A run with everything open."""

    pool: Pool
    folder: RunWriter
    personas: Personas
    tracker: "BudgetTracker"
    patience: Patience

    def result(self) -> SynthesisResult:
        """What is on disk, with the reason why it is no more."""
        folder = RunFolder(self.folder.path, self.folder.config)
        early = None if self.pool.reached else self.pool.stopped_early
        ended = self._why() if early is None else self.patience.explain(Yield.of(self.folder.committed))
        return SynthesisResult(folder, ended=ended, stopped_early=early, bad_personas=self.personas.bad)

    def _why(self) -> str | None:
        if self.pool.out_of_money:
            accepted = self.folder.committed.accepted
            return what_it_takes(self.tracker.budget, self.tracker.spent, accepted=accepted, n=self.folder.config.n)
        count = self.pool.ran_out_after
        source = self.personas.description
        return None if count is None else f"{source} ran out after {count:,} persona{'s' * (count != 1)}"


@dataclass
class Overlaps:
    """Where it is told what evaluation sets have in common with a trajectory that is kept."""

    log: "FilteringBoundLogger | None" = None

    def tell(self, trajectory: str, overlaps: "Sequence[Overlap]") -> None:
        """Write it to events.jsonl."""
        if self.log is not None:
            found = [{"where": one.where, "words": one.words, "source": one.source} for one in overlaps[:_TOLD]]
            self.log.warning("contaminated", trajectory=trajectory, overlaps=len(overlaps), first=found)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `synthesize`, see there."""

    personas: PersonaSource | None
    n: int
    backend: "BackendSpec"
    play: str
    rules: "Rule | str | None"
    script_rules: "Rule | str | None"
    mistakes: Mistakes | None
    attempts: Attempts | None
    grounding: Grounding | None
    branches: int
    episodes_per_script: int
    curation: Curation | None
    output: str | PathLike[str] | None
    concurrency: int
    seed: int
    prompts: str | PathLike[str] | None
    judge: bool
    max_turns: int | None
    fresh: bool
    budget: Budget | str | None
    patience: int
    fallback: "str | Backend | None"
    deadline: float | None
    processes: int
    log_level: str
    tracing: Tracing | None
    on_progress: Callable[[Progress], None] | None
    call: "Completion | None"

    def __post_init__(self) -> None:
        _check_count("n", self.n, "how many accepted trajectories to make", most=MAX_N)
        _check_count("concurrency", self.concurrency, "how many episodes to play at once", most=MAX_CONCURRENCY)
        _check_count("processes", self.processes, "in how many processes to play", most=MAX_PROCESSES)
        if self.deadline is not None and not self.deadline > 0:
            raise InputError(f"deadline is {self.deadline!r}; expected seconds, more than 0, or None for no end")
        _check_count("patience", self.patience, "episodes without one accepted", least=0)
        if self.max_turns is not None:
            _check_count("max_turns", self.max_turns, "the longest draft, in turns")
        plays.checked(self.play)
        _check_count("branches", self.branches, "trajectories from one verified prefix", most=MAX_BRANCHES)
        _check_count("episodes_per_script", self.episodes_per_script, "plays of one script", most=MAX_BRANCHES)
        if self.grounding is not None and not plays.find(self.play).executed:
            raise InputError(f"grounding is given, and play is {self.play!r}; it is for play='grounded' alone")
        if isinstance(cast("object", self.seed), bool) or not isinstance(cast("object", self.seed), int):
            raise InputError(f"seed is {self.seed!r}; expected a whole number")
        for name, kind in (
            ("mistakes", Mistakes),
            ("attempts", Attempts),
            ("grounding", Grounding),
            ("curation", Curation),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise InputError(f"{name} is {value!r}; expected {kind.__name__}(...) or None")
        Budget.of(self.budget)

    @asynccontextmanager
    async def begin(
        self,
        *,
        on_accepted: Callable[[Trajectory], None] | None = None,
        has_room: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[Begun, None]:
        """Open everything and make the pool; the folder is made last, when all else is known to be usable.

        For a run that has its `n` already, neither personas nor models are looked at.

        Raises:
            InputError: Something that was asked cannot be done.
            StorageError: The folder cannot be written.
        """
        # Imported here: what opens models brings pydantic-ai with it.
        from refinesynth.backends import resolve, resolve_roles
        from refinesynth.client import open_models
        from refinesynth.client.http.choosing import routed
        from refinesynth.client.watch import Calls

        settings = self._settings()
        # A key is asked for only where a role is played.
        roles = plays.find(self.play).roles(settings)
        backends = {role: found for role, found in resolve_roles(self.backend).items() if role in roles}
        calls = Calls()
        fallback = None if self.fallback is None else routed(resolve(self.fallback), in_flight=self.concurrency)
        paths = {role: routed(backend, in_flight=self.concurrency) for role, backend in backends.items()}
        open_once = cache(partial(open_models, paths, call=self.call, fallback=fallback, calls=calls))
        players = Players(
            settings=settings,
            backends=paths,
            fallback=fallback,
            call=self.call,
            models=open_once,
            calls=calls,
            processes=self.processes,
            log_level=level_of(self.log_level),
            tracing=self.tracing,
        )
        budget = Budget.of(self.budget)
        asked = backends.values() if fallback is None else (*backends.values(), fallback)
        prices = prices_of(asked, budget, injected=self.call is not None)
        async with open_personas(self.personas) as personas:
            curator: Curator | None = None
            overlaps = Overlaps()
            at_most: int | None = None
            if not self._has_enough():
                at_most = await personas.at_most() if self.patience else None
                await personas.look()
                open_once()
                curator = await self._curator(overlaps)
            folder = RunWriter.claim(
                next_run_folder() if self.output is None else Path(self.output),
                record(
                    settings,
                    backends,
                    n=self.n,
                    concurrency=self.concurrency,
                    personas=personas.description,
                    budget=None if budget is None else str(budget),
                    patience=self.patience,
                    fallback=fallback,
                    curation=self.curation,
                ),
                fresh=self.fresh,
                log_level=level_of(self.log_level),
            )
            try:
                tracker = tracker_of(
                    budget, prices, spent=folder.spent(), totals=folder.committed, waiting=folder.waiting_lines()
                )
                if curator is not None:
                    overlaps.log = folder.log
                    read = partial(curator.learn, RunFolder(folder.path, folder.config).trajectories())
                    await anyio.to_thread.run_sync(read)
                per_episode = settings.branches * settings.episodes_per_script
                patience = Patience(
                    n=self.n,
                    episodes=self.patience,
                    per_episode=per_episode,
                    personas=at_most,
                    budget=budget or Budget(),
                )
                async with players.open(folder, tracker) as ready:
                    pool = Pool(
                        play=ready.play,
                        personas=personas,
                        folder=folder,
                        n=self.n,
                        concurrency=self.concurrency,
                        on_progress=self.on_progress,
                        on_accepted=on_accepted,
                        has_room=has_room,
                        funds=tracker,
                        surroundings=StatusProbe(tracker, calls, open_once, ready.elsewhere).look,
                        curate=None if curator is None else curator.curate,
                        per_episode=per_episode,
                        patience=patience,
                    )
                    if not pool.reached:
                        _log_start(folder, personas)
                    yield Begun(pool, folder, personas, tracker, patience)
            finally:
                folder.close()

    async def _curator(self, overlaps: Overlaps) -> "Curator | None":
        """Who looks at what the rules accept; reads the evaluation sets, which may be large, off the event loop."""
        if self.curation is None or self.curation.idle:
            return None
        from refinesynth.synthesis.curating import Curator

        return await anyio.to_thread.run_sync(partial(Curator.of, self.curation, report=overlaps.tell))

    def _has_enough(self) -> bool:
        """Whether there is nothing left to do; what else is wrong with the folder is said when it is opened."""
        if self.output is None or self.fresh:
            return False
        try:
            return RunFolder.open(Path(self.output)).totals().accepted >= self.n
        except RunFolderError:
            return False

    def _settings(self) -> "EpisodeSettings":
        # Imported here: it brings pydantic-ai with it.
        from refinesynth.episode import MAX_TURNS, EpisodeSettings
        from refinesynth.prompts import Prompts

        play, grounding = plays.find(self.play), self.grounding or Grounding()
        draft_chain = _chain("rules", self.rules, play.rules)
        script_chain = _chain("script_rules", self.script_rules, partial(play.script_rules, grounding))
        own_prompts = None if self.prompts is None else Path(self.prompts)
        return EpisodeSettings(
            play=self.play,
            rules=draft_chain,
            script_rules=script_chain,
            mistakes=self.mistakes or Mistakes(),
            terse=grounding.terse,
            transient=grounding.transient,
            mix=grounding.mix,
            difficulty=grounding.difficulty,
            branches=self.branches,
            episodes_per_script=self.episodes_per_script,
            attempts=self.attempts or Attempts(),
            seed=self.seed,
            prompts=Prompts(own_prompts, rules=self._replayed_rules() or (draft_chain, script_chain)),
            max_turns=MAX_TURNS if self.max_turns is None else self.max_turns,
            judge=self.judge,
            deadline=self.deadline,
        )

    def _replayed_rules(self) -> "tuple[Rule, ...]":
        """The rules of a run that is replayed: its answers are found by prompts that tell these rules' numbers, whatever is judged by now."""
        from refinesynth import rules
        from refinesynth.backends import resolve_roles
        from refinesynth.backends.replayed import recorded_run, replayed_folder

        for role, backend in resolve_roles(self.backend).items():
            folder = next(filter(None, map(replayed_folder, backend.each)), None)
            with suppress(InputError):  # a role that was not played, or a rule that is not installed here
                if folder is not None:
                    run = recorded_run(folder, role)
                    return rules.parse(run.rules), rules.parse(run.script_rules)
        return ()


def _check_count(name: str, value: object, meaning: str, *, least: int = 1, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most:,}"
        raise InputError(f"{name} is {value!r}; expected a whole number, {bounds}: {meaning}")


def _chain(name: str, given: "Rule | str | None", default: "Callable[[], Rule]") -> "Rule":
    from refinesynth import rules

    if given is None:
        return default()
    if isinstance(given, str):
        return rules.parse(given)
    if not callable(cast("object", given)):
        raise InputError(f"{name} is {given!r}; expected a rule or its text, such as 'strict()'")
    return given


def _log_start(folder: RunWriter, personas: Personas) -> None:
    folder.milestones.info(
        "run_started",
        **folder.config.model_dump(mode="json", include={"n", "concurrency", "play", "seed", "personas", "versions"}),
        finished=folder.committed.episodes,
        accepted=folder.committed.accepted,
    )

    def skipped(row: BadRow) -> None:
        folder.log.warning("persona_skipped", line=row.line, reason=row.reason)

    for row in personas.problems:
        skipped(row)
    personas.on_problem = skipped
