"""Settings of a run, from arguments and a file, checked before the run writes or pays; and their record in config.json."""

import inspect
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property, partial
from hashlib import blake2b
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from pydantic import BaseModel, JsonValue

from refinesynth._version import __version__
from refinesynth.client.budget.budget import Budget
from refinesynth.episode import plays
from refinesynth.errors import ConfigurationError, InputError, RunFolderError
from refinesynth.lazy_imports import check_installed
from refinesynth.run import RunConfig, RunFolder, stable_repr
from refinesynth.settings import Curation, PlaySettings, RunSettings
from refinesynth.synthesis.progress import Progress

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.batch.batching import Batches
    from refinesynth.episode import EpisodeSettings
    from refinesynth.episode.play import Play
    from refinesynth.rules import Rule
    from refinesynth.trajectory import ActionSpec


_PACKAGES = ("pydantic-ai-slim", "litellm")
"""Packages with a recorded version."""

_MODEL_SETTINGS = ("model", "temperature", "top_p", "max_tokens", "output_mode", "extra")
"""Settings of a backend that change its answers; the others concern the connection."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Settings of a run, with settings that apply to one call alone."""

    settings: RunSettings
    fresh: bool = False
    on_progress: Callable[[Progress], None] | None = None
    call: "Completion | None" = None
    actions: "tuple[ActionSpec, ...]" = ()
    """The user's tools as read at the start by `user_tools.actions_for`."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Make a request from the arguments of `synthesize`, by name. Raises InputError: an argument cannot be used."""
        call_settings = {field.name: arguments[field.name] for field in fields(cls) if field.name in arguments}
        settings = RunSettings.make({name: value for name, value in arguments.items() if name not in call_settings})
        for problem in _problems(settings, arguments.get("repairer")):
            raise InputError(problem)
        settings = settings.model_copy(update={"n": settings.wanted()})
        if settings.on_ray:
            check_installed("cluster", "ray")
        Budget.of(settings.budget)
        return cls(settings=settings, **call_settings)

    def backends(self, settings: "EpisodeSettings") -> "tuple[dict[Role, Backend], Backend | None]":
        """Return the backends of the played roles, and the fallback; other roles need no keys."""
        from refinesynth.backends import resolve, resolve_roles

        run_settings = self.settings
        roles = plays.find(settings.play).roles(settings)
        by_role = {role: backend for role, backend in resolve_roles(run_settings.backend).items() if role in roles}
        return by_role, None if run_settings.fallback is None else resolve(run_settings.fallback)

    def bounded(self, backends: "Mapping[Role, Backend]") -> "frozenset[Role]":
        """Return the roles with a default bound of the answer: all, except those that a resumed run has without a bound."""
        earlier_models = {} if self._earlier_run is None else self._earlier_run.config.models
        return frozenset(role for role in backends if not _is_without_bound(earlier_models.get(role)))

    def batches(self, backends: "Mapping[Role, Backend]") -> "Batches | None":
        """Return the batches for the requests; None if each request is sent by itself.

        Raises ConfigurationError: no request can be sent in batches.
        """
        if not self.settings.batch:
            return None
        from refinesynth.client.batch.batching import Batches, refuse_unbatched

        if self.settings.on_ray or self.call is not None:
            raise ConfigurationError(
                "batch is for a run in one process that asks its backends itself; leave out workers, cluster and call"
            )
        refuse_unbatched(backends)
        return Batches()

    def refuse_without_player(self, played: Container[object]) -> None:
        """Raise InputError for tool calls, lenient matching, or a repairer without a player role."""
        settings = self.settings
        needs_player = {
            "player_form": settings.player_form == "tools",
            "match": settings.match == "lenient",
            "repairer": settings.repairer,
        }
        for name, value in needs_player.items():
            if value and "player" not in played:
                raise InputError(
                    f"{name} is {getattr(settings, name)!r}, and nobody plays turn by turn in the play {settings.play!r}; "
                    "choose play='live' or 'grounded'"
                )

    @cached_property
    def _earlier_run(self) -> RunFolder | None:
        """Run to resume; None without a readable run, whose problems are reported when the folder is opened."""
        with suppress(RunFolderError):
            return None if self.settings.output is None or self.fresh else RunFolder.open(self.settings.output)
        return None

    def has_enough(self) -> bool:
        """Return True if the resumed run has `n` trajectories, with all of their lines."""
        run = self._earlier_run
        with suppress(RunFolderError):
            return run is not None and run.totals().accepted >= self.settings.n and run.is_whole()
        return False

    def episodes(self) -> "EpisodeSettings":
        """Return the settings of each episode."""
        # Imported here: it imports pydantic-ai, which takes time.
        from refinesynth.episode import EpisodeSettings
        from refinesynth.prompts import Prompts

        settings, play = self.settings, plays.find(self.settings.play)
        drafts = _rule_from("rules", settings.rules, partial(_default_rules, play, settings))
        scripts = _rule_from("script_rules", settings.script_rules, partial(play.script_rules, settings.grounding))
        prompts = Prompts(settings.prompts, rules=(drafts, scripts))
        return EpisodeSettings(
            **{name: getattr(settings, name) for name in PlaySettings.model_fields},
            rules=drafts,
            script_rules=scripts,
            prompts=prompts,
            tools=self.actions,
            server=settings.mcp if settings.real else None,
            real_state=(settings.real_state or "") if settings.real else None,
            scripted=settings.scripts is not None,
        )

    def record(
        self,
        settings: "EpisodeSettings",
        backends: "Mapping[Role, Backend]",
        *,
        personas: str,
        fallback: "Backend | None" = None,
    ) -> RunConfig:
        """Return the configuration of the run, without values that could be secrets.

        The fallback is recorded as a connection: a resumed run may add one, and each trajectory names the models of its
        answers. Raises InputError: an evaluation set cannot be read.
        """
        run_settings = self.settings
        models: dict[str, JsonValue] = {}
        connections: dict[str, JsonValue] = {}
        for role, backend in backends.items():
            parts = zip(*(_split_settings(item, role, settings) for item in backend.members), strict=True)
            # A list if several models share the role.
            models[str(role)], connections[str(role)] = (part[0] if len(part) == 1 else [*part] for part in parts)
        if fallback is not None:
            connections["fallback"] = _redacted(fallback.model_dump(mode="json"))
        play, budget, curation = plays.find(settings.play), Budget.of(run_settings.budget), run_settings.curation
        prompts = play.digest(settings.prompts)
        extra_templates = {
            "player_repair": run_settings.repairer == "model",
            "given_tools": bool(self.actions),
            "tool_server": run_settings.real,
        }
        for template, is_read in extra_templates.items():
            prompts = settings.prompts.digest_plus(prompts, template) if is_read else prompts
        tools = {one.name.partition(" ")[0]: blake2b(one.to_json(), digest_size=8).hexdigest() for one in self.actions}
        played = run_settings.model_dump(mode="json", include=set(PlaySettings.model_fields))
        return RunConfig.model_validate(
            {
                **played,
                "n": run_settings.n,
                "concurrency": run_settings.concurrency,
                "budget": None if budget is None else str(budget),
                "early_stop": run_settings.early_stop,
                "rules": stable_repr(settings.rules),
                "script_rules": stable_repr(settings.script_rules),
                "grounding": {**played["grounding"], "mix": stable_repr(run_settings.grounding.mix)}
                if play.executed
                else None,
                "curation": None if curation is None or curation.idle else _recorded(curation),
                "tools": tools or None,
                "real": blake2b((run_settings.real_state or "").encode(), digest_size=8).hexdigest()
                if run_settings.real
                else None,
                "prompts": prompts,
                "models": models,
                "connections": connections,
                "personas": personas,
                "versions": {
                    "refinesynth": __version__,
                    "python": ".".join(map(str, sys.version_info[:3])),
                    **{name: version(name) for name in _PACKAGES},
                },
            }
        )


def _problems(settings: RunSettings, repairer: object) -> Iterator[str]:
    """Yield a message for each setting that has no effect with the others; `repairer` is the argument as given."""
    plays.PLAYS.entry(settings.play)
    executed, play = plays.find(settings.play).executed, settings.play
    sources = [name for name in ("tools", "mcp", "scripts") if getattr(settings, name) is not None]
    if "grounding" in settings.model_fields_set and not executed:
        yield f"grounding is given, and play is {play!r}; it is for play='grounded' alone"
    if settings.repairer == "planner" and not executed:
        reason = "it plans in play='grounded' alone, elsewhere give the role a model"
        yield f"the repairer is 'planner', and play is {play!r}; {reason}"
    yield from _repair_problems(settings, repairer)
    if settings.parallel_calls and settings.player_form != "tools":
        reason = f"player_form is {settings.player_form!r}; it is for player_form='tools' alone"
        yield f"parallel_calls is True, and {reason}"
    if len(sources) > 1:
        yield f"{' and '.join(sources)} are given; give only one of them"
    if settings.allow_tool and not {"tools", "mcp"} & {*sources}:
        reason = "there are no tools to choose from; give tools or mcp too"
        yield f"allow_tool is {', '.join(settings.allow_tool)}, and {reason}"
    if settings.real and (play != "live" or settings.mcp is None):
        reason = "it needs the server that executes the calls, and play='live'"
        yield f"real is given, with play {play!r} and mcp {settings.mcp!r}; {reason}"
    if settings.real_state is not None and not settings.real:
        yield "real_state is given without real; give that too"


def _repair_problems(settings: RunSettings, repairer: object) -> Iterator[str]:
    if repairer not in {None, settings.repairer}:
        reason = f"the backend of that role makes it {settings.repairer!r}; give only one of the two"
        yield f"repairer is {repairer!r}, and {reason}"
    if settings.repair_turns != 1 and settings.repairer is None:
        yield f"repair_turns is {settings.repair_turns!r}, and nobody repairs; give a repairer, or leave out repair_turns"


def _default_rules(play: "Play", settings: RunSettings) -> "Rule":
    """Return the play's own rules; with `at_least`, each trajectory must hold that many mistakes."""
    from refinesynth import rules

    chain, mistakes = rules.strict(imagined=False) if settings.real else play.rules(), settings.mistakes
    return chain & rules.EnoughMistakes(minimum=mistakes.minimum) if mistakes.policy == "at_least" else chain


def _rule_from(name: str, value: "Rule | str | None", default: "Callable[[], Rule]") -> "Rule":
    from refinesynth import rules

    if value is None:
        return default()
    if isinstance(value, str):
        return rules.parse(value)
    if not callable(cast("object", value)):
        raise InputError(f"{name} is {value!r}; expected a rule or its text, such as 'strict()'")
    return value


def _is_without_bound(recorded: JsonValue) -> bool:
    first = recorded[0] if isinstance(recorded, list) else recorded
    return isinstance(first, dict) and first.get("max_tokens") is None


def _split_settings(
    backend: "Backend", role: "Role", settings: "EpisodeSettings"
) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Return a backend's settings that change its answers, and the others."""
    from refinesynth.client.default_limits import bound_of

    values: dict[str, JsonValue] = {name: _redacted(value) for name, value in backend.model_dump(mode="json").items()}
    if role in settings.bounded:
        values["max_tokens"] = bound_of(role, backend)
    return {name: values.pop(name) for name in _MODEL_SETTINGS}, values


def _recorded(curation: Curation) -> dict[str, JsonValue]:
    """Return the settings with a digest of the evaluation sets in place of their paths."""
    from refinesynth.diversity.contamination import digest_of

    dumped: dict[str, JsonValue] = curation.model_dump(mode="json", exclude={"contamination"})
    return {**dumped, "evaluation": digest_of(curation.contamination) if curation.contamination else None}


def _redacted(value: JsonValue) -> JsonValue:
    """Return the value with the keys of the environment redacted; `Backend` refuses settings named like secrets."""
    from refinesynth.text.formatting import redact

    if isinstance(value, dict):
        return {name: _redacted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


_P = ParamSpec("_P")
_R = TypeVar("_R")

_TAB = " " * 4


def settings_of(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the settings in a file, by name. Raises InputError: the file is unreadable or has an unknown setting."""
    from refinesynth.files.settings_file import read_settings

    settings = read_settings(Path(path))
    for name in settings.keys() - RunSettings.model_fields.keys():
        matches = get_close_matches(name, RunSettings.model_fields, n=1)
        suggestion = f"did you mean {matches[0]}?" if matches else f"there are {', '.join(RunSettings.model_fields)}"
        raise ConfigurationError(f"{str(path)!r}: there is no setting {shortened(name)}; {suggestion}")
    for name in settings.keys() & {"backend", "fallback"}:
        settings[name] = _backends(settings[name])
    return settings


def _backends(value: Any) -> Any:
    """Return backends with each description by settings (`{model: NAME, temperature: 0.7}`) as a `Backend`."""
    from refinesynth.backends import Backend, resolve

    if isinstance(value, list):
        return [_backends(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    settings = cast("dict[str, Any]", value)
    if "model" not in settings:
        return {role: _backends(item) for role, item in settings.items()}
    base = resolve(str(settings["model"]))
    try:
        return Backend.model_validate({**dict(base), **settings, "model": base.model})
    except ConfigurationError as error:
        raise ConfigurationError(f"the backend {settings['model']!r}: {str(error).removeprefix('Backend: ')}") from None


def described_by(model: type[BaseModel]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Insert the descriptions of a model's fields into a function's `Args:`, before its own entries."""

    def with_descriptions(function: Callable[_P, _R]) -> Callable[_P, _R]:
        head, section, rest = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")
        args = [
            fill(
                f"{name}: {model.model_fields[name].description}", 116, initial_indent=_TAB, subsequent_indent=2 * _TAB
            )
            for name in inspect.signature(function).parameters
            if name in model.model_fields
        ]
        function.__doc__ = "\n".join([f"{head}{section}".rstrip("\n"), *args, rest])
        return function

    return with_descriptions
