"""What is asked of a run, checked before anything is written or paid for; and the run made ready from it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from refinesynth.attempts import Attempts
from refinesynth.errors import InputError
from refinesynth.mistakes import Mistakes
from refinesynth.outcome import EpisodeOutcome
from refinesynth.personas import BadRow, Personas, PersonaSource, open_personas
from refinesynth.run import RunConfig, RunWriter, next_run_folder
from refinesynth.synthesis.pool import Pool
from refinesynth.synthesis.progress import Progress
from refinesynth.synthesis.recording import record
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.trajectory import Persona, Trajectory

if TYPE_CHECKING:
    from refinesynth.backends import BackendSpec, Completion, Role
    from refinesynth.episode import EpisodeSettings
    from refinesynth.rules import Rule

MAX_CONCURRENCY = 100_000
"""Most workers: each is a task with a few kilobytes of its own, before it does anything."""


MAX_N = 10**12
"""Most trajectories that can be asked for; far beyond what any disk holds, and exact as a float in every forecast."""


@dataclass(frozen=True)
class Begun:
    """A run with everything open."""

    pool: Pool
    folder: RunWriter
    personas: Personas

    def result(self) -> SynthesisResult:
        """What is on disk, with the reason why it is no more."""
        count = self.pool.ran_out_after
        source = self.personas.description
        ended = None if count is None else f"{source} ran out after {count:,} persona{'s' * (count != 1)}"
        return SynthesisResult(self.folder, ended=ended, bad_personas=self.personas.bad)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `synthesize`, see there."""

    personas: PersonaSource | None
    n: int
    backend: "BackendSpec"
    play: Literal["live", "narrated"]
    rules: "Rule | str | None"
    script_rules: "Rule | str | None"
    mistakes: Mistakes | None
    attempts: Attempts | None
    output: str | PathLike[str] | None
    concurrency: int
    seed: int
    prompts: str | PathLike[str] | None
    judge: bool
    max_turns: int | None
    resume: bool
    on_progress: Callable[[Progress], None] | None
    call: "Completion | None"

    def __post_init__(self) -> None:
        _check_count("n", self.n, "how many accepted trajectories to make", most=MAX_N)
        _check_count("concurrency", self.concurrency, "how many episodes to play at once", most=MAX_CONCURRENCY)
        if self.max_turns is not None:
            _check_count("max_turns", self.max_turns, "the longest draft, in turns")
        if self.play not in ("live", "narrated"):
            raise InputError(f"play is {self.play!r}; expected 'live' or 'narrated'")
        if isinstance(cast("object", self.seed), bool) or not isinstance(cast("object", self.seed), int):
            raise InputError(f"seed is {self.seed!r}; expected a whole number")
        for name, kind in (("mistakes", Mistakes), ("attempts", Attempts)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise InputError(f"{name} is {value!r}; expected {kind.__name__}(...) or None")
        if self.resume and self.output is None:
            raise InputError("resume is asked for without output; name the folder of the run to go on with")

    @asynccontextmanager
    async def begin(
        self,
        *,
        on_accepted: Callable[[Trajectory], None] | None = None,
        has_room: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[Begun, None]:
        """Open everything and make the pool; the folder is made last, when all else is known to be usable.

        Raises:
            InputError: Something that was asked cannot be done.
        """
        # Imported here: what opens models brings pydantic-ai with it.
        from refinesynth.backends import open_models, resolve_roles

        settings = self._settings()
        # A key is asked for only where a role is played.
        backends = {role: found for role, found in resolve_roles(self.backend).items() if role in settings.roles}
        async with open_personas(self.personas) as personas:
            await personas.look()
            models = open_models(backends, call=self.call)
            folder = self._open_folder(
                record(settings, backends, n=self.n, concurrency=self.concurrency, personas=personas.description)
            )
            try:
                _log_start(folder, personas)
                pool = Pool(
                    play=partial(_play, settings, models),
                    personas=personas,
                    folder=folder,
                    n=self.n,
                    concurrency=self.concurrency,
                    on_progress=self.on_progress,
                    on_accepted=on_accepted,
                    has_room=has_room,
                )
                yield Begun(pool, folder, personas)
            finally:
                folder.close()

    def _settings(self) -> "EpisodeSettings":
        # Imported here: it brings pydantic-ai with it.
        from refinesynth import rules
        from refinesynth.episode import MAX_TURNS, EpisodeSettings
        from refinesynth.prompts import Prompts

        mistakes = self.mistakes or Mistakes()
        return EpisodeSettings(
            play=self.play,
            rules=_chain("rules", self.rules, rules.strict),
            script_rules=_chain("script_rules", self.script_rules, rules.script),
            mistakes=mistakes,
            attempts=self.attempts or Attempts(),
            seed=self.seed,
            prompts=Prompts(None if self.prompts is None else Path(self.prompts)),
            max_turns=MAX_TURNS if self.max_turns is None else self.max_turns,
            judge=self.judge,
        )

    def _open_folder(self, config: RunConfig) -> RunWriter:
        if self.output is None:
            return RunWriter.create(next_run_folder(), config)
        return (RunWriter.resume if self.resume else RunWriter.create)(Path(self.output), config)


def _check_count(name: str, value: object, meaning: str, *, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        bounds = "1 or more" if most is None else f"from 1 to {most:,}"
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


async def _play(
    settings: "EpisodeSettings", models: "Mapping[Role, Any]", index: int, persona: Persona
) -> EpisodeOutcome:
    from refinesynth.episode import play_episode

    return await play_episode(persona, index=index, settings=settings, models=models)


def _log_start(folder: RunWriter, personas: Personas) -> None:
    folder.log.info(
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
