"""What is asked of a run, checked before anything is written or paid for."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from refinesynth.client.budget.budget import Budget
from refinesynth.client.tracing import Tracing
from refinesynth.episode import plays
from refinesynth.errors import ConfigurationError, InputError, RunFolderError
from refinesynth.extras import check_installed
from refinesynth.run import RunFolder
from refinesynth.run.logs import level_of
from refinesynth.run.second_tries import with_another
from refinesynth.settings import RunSettings
from refinesynth.synthesis.in_notebook import shown_in_notebook
from refinesynth.synthesis.progress import Progress

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.batch.collecting import Batches
    from refinesynth.episode import EpisodeSettings
    from refinesynth.episode.play import Play
    from refinesynth.rules import Rule
    from refinesynth.settings import Mistakes


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

    def backends(self, settings: "EpisodeSettings") -> "tuple[dict[Role, Backend], Backend | None]":
        """Of the roles that are played, so that a key is asked for only where it is needed; and the fallback."""
        from refinesynth.backends import resolve, resolve_roles

        asked = self.settings
        roles = plays.find(settings.play).roles(settings)
        found = {role: backend for role, backend in resolve_roles(asked.backend).items() if role in roles}
        return found, None if asked.fallback is None else resolve(asked.fallback)

    def batches(self, backends: "Mapping[Role, Backend]") -> "Batches | None":
        """What requests are sent in; None if each is sent by itself.

        Raises:
            ConfigurationError: None of them can be sent in batches.
        """
        if not self.settings.batch:
            return None
        from refinesynth.client.batch.collecting import Batches, refuse_unbatched

        asked = self.settings
        if asked.workers > 1 or asked.cluster is not None or self.call is not None:
            raise ConfigurationError(
                "batch is for a run in one process that asks its backends itself; leave out workers, cluster and call"
            )
        refuse_unbatched(backends)
        return Batches()

    def refuse_without_player(self, models: "Mapping[Role, Model]") -> None:
        """Whether there is a player, where one is to be asked with tool calls; one that has none plays in text.

        Raises:
            InputError: There is none.
        """
        if self.settings.player_form == "tools" and "player" not in models:
            raise InputError(
                f"player_form is 'tools', and nobody plays turn by turn in the play {self.settings.play!r}"
            )

    def has_enough(self) -> bool:
        """Whether there is nothing left to do; what else is wrong with the folder is said when it is opened."""
        if self.settings.output is None or self.fresh:
            return False
        try:
            return RunFolder.open(self.settings.output).totals().accepted >= self.settings.n
        except RunFolderError:
            return False

    def look_for_failed(self) -> None:
        """Whether there is something to be tried again, said before anything is written.

        Raises:
            InputError: No run is named, none is there, or nothing failed in it.
        """
        if self.fresh:
            raise InputError("fresh starts over, and retry_failed goes on with what is there: leave one of them out")
        if self.settings.output is None:
            raise InputError("retry_failed plays episodes of a run again: give its folder as output")
        folder = RunFolder.open(self.settings.output)
        if not self.has_enough():
            with_another(folder, stopped=False)

    def episodes(self) -> "EpisodeSettings":
        """How one is played."""
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
