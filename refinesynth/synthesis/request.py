"""What is asked of a run, checked before anything is written or paid for; and the run made ready from it."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
import anyio.to_thread

from refinesynth.client.budget.budget import Budget
from refinesynth.client.tracing import Tracing
from refinesynth.episode import plays
from refinesynth.errors import ConfigurationError, InputError, RunFolderError
from refinesynth.extras import check_installed
from refinesynth.personas import BadRow, Personas
from refinesynth.run import RunFolder, RunWriter, next_run_folder
from refinesynth.run.logs import level_of
from refinesynth.run.scripts import open_source
from refinesynth.run.second_tries import superseded, with_another
from refinesynth.settings import RunSettings
from refinesynth.synthesis.in_notebook import shown_in_notebook
from refinesynth.synthesis.patience import Patience, Yield
from refinesynth.synthesis.paying import prices_of, tracker_of, what_it_takes
from refinesynth.synthesis.players import Players
from refinesynth.synthesis.pool import Pool
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.recording import record
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.room import FEWEST, Room, most_of
from refinesynth.synthesis.status_probe import StatusProbe
from refinesynth.trajectory import Trajectory

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from structlog.typing import FilteringBoundLogger

    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.batch.collecting import Batches
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.diversity import Overlap
    from refinesynth.episode import EpisodeSettings
    from refinesynth.episode.play import Play
    from refinesynth.rules import Rule
    from refinesynth.settings import Mistakes
    from refinesynth.synthesis.curating import Curator

_TOLD = 5
"""Overlaps with evaluation sets that are written of one trajectory."""


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
        ended = self._why() if early is None else self.patience.explain(self.pool.seen)
        return SynthesisResult(folder, ended=ended, stopped_early=early, bad_personas=self.personas.bad)

    def _why(self) -> str | None:
        if self.pool.out_of_money:
            accepted = self.folder.committed.accepted
            return what_it_takes(self.tracker.budget, self.tracker.spent, accepted=accepted, n=self.folder.config.n)
        count, again = self.pool.ran_out_after, len(superseded(self.folder.rounds))
        if count is None:
            return None
        tried = f", {again:,} of them tried again" if again else ""
        return f"{self.personas.description} ran out after {count - again:,} persona{'s' * (count - again != 1)}{tried}"


@dataclass
class Overlaps:
    """Where overlaps of evaluation sets with a trajectory that is kept are reported."""

    log: "FilteringBoundLogger | None" = None

    def report_overlaps(self, trajectory: str, overlaps: "Sequence[Overlap]") -> None:
        """Write it to events.jsonl."""
        if self.log is not None:
            found = [{"where": one.where, "words": one.words, "source": one.source} for one in overlaps[:_TOLD]]
            self.log.warning("contaminated", trajectory=trajectory, overlaps=len(overlaps), first=found)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run that is asked for: its settings, and what is of this call alone."""

    settings: RunSettings
    fresh: bool = False
    retry_failed: bool = False
    tracing: Tracing | None = None
    on_progress: Callable[[Progress], None] | None = None
    call: "Completion | None" = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the arguments of `synthesize`, by name.

        Raises:
            InputError: One of them cannot be.
            ConfigurationError: Workers are asked for, and Ray is not installed.
        """
        shown = given.get("progress", False) and given.get("on_progress") is None
        given = {name: value for name, value in given.items() if name != "progress"}
        if shown:
            given["on_progress"] = shown_in_notebook()
        own = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        settings = RunSettings.of({name: value for name, value in given.items() if name not in own})
        plays.checked(settings.play)
        if "grounding" in settings.model_fields_set and not plays.find(settings.play).executed:
            raise InputError(f"grounding is given, and play is {settings.play!r}; it is for play='grounded' alone")
        settings = settings.model_copy(update={"n": settings.wanted()})
        if settings.journals is not None and settings.workers == 1 and settings.cluster is None:
            raise InputError(
                "journals is given, and there are no workers; give workers too, as --workers 4 (workers=4)"
            )
        if settings.journals is not None and isinstance(settings.output, str):
            raise InputError(
                f"journals is given, and what workers keep there would not go up to {settings.output!r}: leave it out, so that they "
                f"keep it in the work folder, or give a folder as output"
            )
        if settings.workers > 1 or settings.cluster is not None:
            check_installed("cluster", "ray")
        Budget.of(settings.budget)
        level_of(settings.log_level)
        return cls(settings=settings, **own)

    @asynccontextmanager
    async def begin(
        self,
        *,
        on_accepted: Callable[[Trajectory], None] | None = None,
        has_room: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[Begun, None]:
        """Open everything and make the pool; the folder is made last, when all else is known to be usable.

        For a run that has its `n` already, neither personas nor models are looked at. One in an object store is brought
        to this machine first, and is all there at the end.

        Raises:
            InputError: Something that was asked cannot be done.
            StorageError: The folder or the store cannot be written.
        """
        # Imported here: most runs have no store.
        from refinesynth.stores import opened_output

        async with opened_output(self.settings.output, fresh=self.fresh) as output:
            here = replace(self, settings=self.settings.model_copy(update={"output": output.path}))

            def may_begin() -> bool:
                return output.has_room() and (has_room is None or has_room())

            async with here.begin_in_folder(on_accepted=on_accepted, has_room=may_begin) as run:
                if not run.pool.reached:
                    await output.begin(run.pool.wake)
                yield run

    @asynccontextmanager
    async def begin_in_folder(
        self, *, on_accepted: Callable[[Trajectory], None] | None, has_room: Callable[[], bool]
    ) -> AsyncGenerator[Begun, None]:
        """See `begin`, of what is written to a folder."""
        # Imported here: what opens models brings pydantic-ai with it.
        from refinesynth.client import open_models
        from refinesynth.client.http.choosing import routed
        from refinesynth.client.lacks import Lacks
        from refinesynth.client.watch import Calls

        if self.retry_failed:
            self._look_for_failed()
        asked, settings = self.settings, self._episodes()
        backends, fallback = self._backends(settings)
        if self.call is None and not self._has_enough():
            _refuse_missing_keys([*backends.values(), *filter(None, [fallback])])
        most = most_of(asked.concurrency, workers=asked.workers)
        paths = {role: routed(backend, in_flight=most) for role, backend in backends.items()}
        second = None if fallback is None else routed(fallback, in_flight=most)
        calls, lacks, batches = Calls(), Lacks(), self._batches(backends)
        known: dict[str, Any] = {"fallback": second, "calls": calls, "lacks": lacks, "batches": batches}
        open_once = cache(partial(open_models, paths, call=self.call, **known))
        players = Players(
            settings=settings,
            backends=paths,
            fallback=second,
            call=self.call,
            models=open_once,
            calls=calls,
            lacks=lacks,
            batches=batches,
            workers=asked.workers,
            cluster=asked.cluster,
            journals=asked.journals,
            log_level=level_of(asked.log_level),
            tracing=self.tracing,
        )
        budget = Budget.of(asked.budget)
        prices = prices_of([*backends.values(), *filter(None, [fallback])], budget, injected=self.call is not None)
        async with open_source(asked.personas, asked.scripts, column=asked.column) as personas:
            if asked.shard is not None:
                personas.only_every(asked.shard.of, first=asked.shard.index)
            overlaps, curator, at_most = Overlaps(), None, None
            if not self._has_enough():
                at_most = await personas.at_most() if asked.patience else None
                await personas.look()
                self._has_player(open_once())
                curator = await self._curator(overlaps)
            folder = RunWriter.claim(
                asked.output or next_run_folder(),
                record(asked, settings, backends, fallback=fallback, personas=personas.description),
                fresh=self.fresh,
                corrected=self.retry_failed,
                log_level=level_of(asked.log_level),
            )
            try:
                spent, waiting = folder.spent(), folder.waiting_lines()
                tracker = tracker_of(budget, prices, spent=spent, totals=folder.committed, waiting=waiting)
                if curator is not None:
                    # At any level: the report counts them.
                    overlaps.log = folder.milestones
                    read = partial(curator.learn, RunFolder(folder.path, folder.config).trajectories())
                    await anyio.to_thread.run_sync(read)
                patience = await self._patience(folder, at_most)
                personas.repeat(folder.rounds)
                async with players.open(folder, tracker) as ready:
                    # A batch has room for all.
                    fewest = FEWEST if asked.concurrency == "auto" and batches is None else most
                    probe = StatusProbe(tracker, calls, open_once, ready.elsewhere)
                    pool = Pool(
                        play=ready.play,
                        personas=personas,
                        folder=folder,
                        n=asked.n,
                        concurrency=Room(most, fewest, probe.limiters, lambda: probe.elsewhere().room),
                        on_progress=self.on_progress,
                        on_accepted=on_accepted,
                        has_room=has_room,
                        funds=tracker,
                        surroundings=probe.look,
                        curate=None if curator is None else curator.curate,
                        per_episode=patience.per_episode,
                        patience=patience,
                    )
                    if not pool.reached:
                        _log_start(folder, personas)
                    yield Begun(pool, folder, personas, tracker, patience)
            finally:
                folder.close()

    async def _patience(self, folder: RunWriter, personas: int | None) -> Patience:
        """When the run has seen enough; what is to be tried again is queued."""
        asked = self.settings
        patience = Patience(
            n=asked.n,
            episodes=asked.patience,
            per_episode=asked.branches * asked.episodes_per_script,
            personas=personas,
            budget=Budget.of(asked.budget) or Budget(),
        )
        if self.retry_failed and folder.committed.accepted < asked.n:
            seen = Yield.of(folder.committed, tried_again=folder.tried_again())
            await folder.try_again(stopped=patience.runs_out(seen) is not None)
        return patience.with_personas(len(superseded(folder.rounds)))

    def _backends(self, settings: "EpisodeSettings") -> "tuple[dict[Role, Backend], Backend | None]":
        """Of the roles that are played, so that a key is asked for only where it is needed; and the fallback."""
        from refinesynth.backends import resolve, resolve_roles

        asked = self.settings
        roles = plays.find(settings.play).roles(settings)
        found = {role: backend for role, backend in resolve_roles(asked.backend).items() if role in roles}
        return found, None if asked.fallback is None else resolve(asked.fallback)

    def _batches(self, backends: "Mapping[Role, Backend]") -> "Batches | None":
        """What requests are sent in; None if each is sent by itself.

        Raises:
            ConfigurationError: None of them can be sent in batches.
        """
        if not self.settings.batch:
            return None
        from refinesynth.client.batch.collecting import Batches
        from refinesynth.client.batch.roles import refuse_unbatched

        asked = self.settings
        if asked.workers > 1 or asked.cluster is not None or self.call is not None:
            raise ConfigurationError(
                "batch is for a run in one process that asks its backends itself; leave out workers, cluster and call"
            )
        refuse_unbatched(backends)
        return Batches()

    def _has_player(self, models: "Mapping[Role, Model]") -> None:
        """Whether there is a player, where one is to be asked with tool calls; one that has none plays in text.

        Raises:
            InputError: There is none.
        """
        if self.settings.player_form == "tools" and "player" not in models:
            raise InputError(
                f"player_form is 'tools', and nobody plays turn by turn in the play {self.settings.play!r}"
            )

    async def _curator(self, overlaps: Overlaps) -> "Curator | None":
        """What looks at what the rules accept; reads the evaluation sets, which may be large, off the event loop."""
        curation = self.settings.curation
        if curation is None or curation.idle:
            return None
        from refinesynth.synthesis.curating import Curator

        return await anyio.to_thread.run_sync(partial(Curator.of, curation, report=overlaps.report_overlaps))

    def _has_enough(self) -> bool:
        """Whether there is nothing left to do; what else is wrong with the folder is said when it is opened."""
        if self.settings.output is None or self.fresh:
            return False
        try:
            return RunFolder.open(self.settings.output).totals().accepted >= self.settings.n
        except RunFolderError:
            return False

    def _look_for_failed(self) -> None:
        """Whether there is something to be tried again, said before anything is written.

        Raises:
            InputError: No run is named, none is there, or nothing failed in it.
        """
        if self.fresh:
            raise InputError("fresh starts over, and retry_failed goes on with what is there: leave one of them out")
        if self.settings.output is None:
            raise InputError("retry_failed plays episodes of a run again: give its folder as output")
        folder = RunFolder.open(self.settings.output)
        if not self._has_enough():
            with_another(folder, stopped=False)

    def _episodes(self) -> "EpisodeSettings":
        # Imported here: it brings pydantic-ai with it.
        from refinesynth.episode import EpisodeSettings
        from refinesynth.prompts import Prompts

        asked, play = self.settings, plays.find(self.settings.play)
        drafts = _chain("rules", asked.rules, partial(_usual, play, asked.mistakes))
        scripts = _chain("script_rules", asked.script_rules, partial(play.script_rules, asked.grounding))
        prompts = Prompts(asked.prompts, rules=self._replayed_rules() or (drafts, scripts))
        return EpisodeSettings(
            **asked.played(),
            rules=drafts,
            script_rules=scripts,
            prompts=prompts,
            scripted=asked.scripts is not None,
        )

    def _replayed_rules(self) -> "tuple[Rule, ...]":
        """The rules of a run that is replayed: its answers are found by prompts that name these rules' numbers, also
        where other rules judge now.
        """
        from refinesynth import rules
        from refinesynth.backends import resolve_roles
        from refinesynth.backends.replayed import recorded_run, replayed_folder

        for role, backend in resolve_roles(self.settings.backend).items():
            folder = next(filter(None, map(replayed_folder, backend.each)), None)
            with suppress(InputError):  # a role that was not played, or a rule that is not installed here
                if folder is not None:
                    run = recorded_run(folder, role)
                    return rules.parse(run.rules), rules.parse(run.script_rules)
        return ()


def _refuse_missing_keys(backends: "Iterable[Backend]") -> None:
    """A key that was asked for by the name of its variable is there, before anything is begun."""
    for backend in chain.from_iterable(mixture.each for mixture in backends):
        name = backend.api_key_env
        if name is not None and not os.environ.get(name):
            raise ConfigurationError(
                f"api_key_env of {backend.label} is {name!r}, and no environment variable of this name holds a key: set it, or "
                f"leave api_key_env out where the server needs none"
            )


def _usual(play: "Play", mistakes: "Mistakes") -> "Rule":
    """The play's own rules; with `at_least`, each trajectory has to hold so many mistakes."""
    from refinesynth import rules

    chain = play.rules()
    return chain & rules.EnoughMistakes(minimum=mistakes.minimum) if mistakes.policy == "at_least" else chain


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
