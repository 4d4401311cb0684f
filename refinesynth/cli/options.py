"""What a person types after an option, read into the values that `synthesize` takes."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import typer

from refinesynth.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from refinesynth.rules import Rule
    from refinesynth.settings.attempts import Attempts
    from refinesynth.settings.curation import Curation
    from refinesynth.settings.grounding import Grounding
    from refinesynth.settings.mistakes import Mistakes

_ROLE = re.compile(r"([A-Za-z][A-Za-z_-]*)=(.*)", re.DOTALL)
"""`player=gpt-4o`; the part before the sign is a word, which no model string with a provider is."""


def backend_spec(given: Sequence[str]) -> str | dict[str, str | list[str]] | None:
    """`--backend`, given any number of times: one for all roles, or `ROLE=SPEC`; None if it was not given.

    A role that is named more than once has several, which take turns.

    Raises:
        ConfigurationError: No such role, or two for all roles. Whether the backends exist is not looked at.
    """
    from refinesynth.backends.role import Role

    known = ["default", *(role.value for role in Role)]
    chosen: dict[str, list[str]] = {}
    for text in given:
        named = _ROLE.fullmatch(text.strip())
        role, spec = (named[1].casefold().replace("-", "_"), named[2]) if named else ("default", text)
        if role not in known:
            near = get_close_matches(role, known, n=1)
            raise ConfigurationError(
                f"--backend {text!r}: there is no role {role!r}; the roles are {', '.join(known)}"
                + (f". Did you mean {near[0]}={spec}?" if near else "")
            )
        if role in chosen and role == "default":
            raise ConfigurationError(
                f"--backend: {role} is given twice, {chosen[role][0]!r} and {spec!r}; give it once. Several can take turns in one "
                f"role, such as player={chosen[role][0]} and player={spec}"
            )
        if not spec.strip():
            raise ConfigurationError(f"--backend {text!r} names no backend; `refinesynth backends` lists the names")
        chosen.setdefault(role, []).append(spec.strip())
    if not chosen:
        return None
    if chosen.keys() == {"default"}:
        return chosen["default"][0]
    return {role: specs if len(specs) > 1 else specs[0] for role, specs in chosen.items()}


def in_flight(text: str) -> int | str:
    """`--concurrency`: `auto`, or a number of 1 or more."""
    if text == "auto" or (text.isdecimal() and int(text)):
        return text if text == "auto" else int(text)
    raise typer.BadParameter(f"{text!r}; expected auto, or a whole number, 1 or more", param_hint="'--concurrency'")


def mistakes_policy(text: str) -> "Mistakes":
    """`spread`, `spread=2`, `natural`, `prompted`, `prompted=1,4` (player turns from 0), `at_least`, `at_least=2`.

    Raises:
        ConfigurationError: It is none of these.
    """
    from refinesynth.settings.mistakes import MOST, at_least, natural, prompted, spread

    policy, _, numbers = text.strip().casefold().replace("-", "_").partition("=")
    try:
        wanted = [int(number) for number in numbers.split(",")] if numbers else []
    except ValueError:
        wanted = [-1]
    if min(wanted, default=0) >= 0:
        if policy == "spread" and len(wanted) <= 1 and all(1 <= mean <= MOST for mean in wanted):
            return spread(*wanted)
        if policy == "natural" and not wanted:
            return natural()
        if policy == "prompted":
            return prompted(*wanted)
        if policy == "at_least" and len(wanted) <= 1:
            return at_least(*wanted)
    raise ConfigurationError(
        f"--mistakes {text!r} is none of: spread, spread=2 (1 to 4 mistakes on average), natural, prompted, prompted=1,4 (player turns, from 0), at_least=2"
    )


def attempts_bounds(text: str) -> "Attempts":
    """`drafts=4,scripts=3,calls=8,answers=2`, each as wanted; a bare number is `drafts`.

    Raises:
        ConfigurationError: A name or a number that there is not.
    """
    from pydantic import ValidationError

    from refinesynth.settings.attempts import Attempts
    from refinesynth.trajectory import explain

    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if equals:
            values[name.strip()] = number.strip()
        else:
            values["drafts"] = name.strip()
    try:
        return Attempts.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            f"--attempts {text!r}: {explain(error)}; write for example scripts=3,drafts=4,calls=8,answers=2"
        ) from error


def grounding(play: str | None, given: Mapping[str, Any], below: object = None) -> "Grounding | None":
    """The options of grounded play, over those of a file `below`; None if none was given.

    Raises:
        ConfigurationError: They are given for another play, or a value cannot be.
    """
    from pydantic import ValidationError

    from refinesynth.episode import plays
    from refinesynth.settings.grounding import Grounding
    from refinesynth.trajectory import explain

    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return None
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in said)
    if play is None or not plays.find(play).executed:
        raise ConfigurationError(f"{flags}: for grounded play alone; give --play grounded too, or leave it out")
    try:
        return Grounding.model_validate({**(cast("dict[str, Any]", below) if isinstance(below, dict) else {}), **said})
    except ValidationError as error:
        raise ConfigurationError(f"{flags}: {explain(error)}") from None


def curation(
    near_duplicates: float | None, contamination: Sequence["Path"], contaminated: str | None
) -> "Curation | None":
    """The options of curation; None if none was given.

    Raises:
        ConfigurationError: It is said what becomes of contaminated trajectories, and no file is given to compare with.
    """
    from pydantic import ValidationError

    from refinesynth.settings.curation import Curation
    from refinesynth.trajectory import explain

    if contaminated is not None and not contamination:
        raise ConfigurationError("--contaminated is given without --contamination FILE; name an evaluation set")
    if near_duplicates is None and not contamination:
        return None
    try:
        return Curation.model_validate(
            {
                "near_duplicates": near_duplicates,
                "contamination": tuple(map(str, contamination)),
                "contaminated": contaminated or "report",
            }
        )
    except ValidationError as error:
        raise ConfigurationError(f"--near-duplicates {near_duplicates!r}: {explain(error)}") from None


def chain(option: str, text: str) -> "Rule":
    """A rule chain by its expression.

    Raises:
        ConfigurationError: It names no rule, or a rule's settings are wrong; the message begins with the option.
    """
    from refinesynth import rules

    try:
        return rules.parse(text)
    except InputError as error:
        raise ConfigurationError(f"{option}: {error}") from error


def preset(name: str | None) -> dict[str, Any]:
    """The settings of a preset, as arguments for `synthesize`; none without a name."""
    if name is None:
        return {}
    from refinesynth.settings.presets import paper

    return paper()


def check_preset(name: str | None, settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a preset whose bound on completions cannot do for the play that overrides its own.

    Raises:
        ConfigurationError: The play goes turn by turn, and every episode would end at the preset's bound.
    """
    if name is None or given["play"] in {None, settings["play"]} or given["attempts"] is not None:
        return
    calls = settings["attempts"].calls
    raise ConfigurationError(
        f"--play {given['play']}: --preset {name} allows an episode {calls} completions, and each turn takes one; give --attempts "
        f"drafts=4 too, which sets no such bound, or leave --play out"
    )


def show_config(asked: Mapping[str, Any], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print every setting of a run, what it decides and which of the layers it comes from, as a file that `--config`
    reads.

    Raises:
        ConfigurationError: A value that a setting does not take.
    """
    from refinesynth.cli.terminal import output
    from refinesynth.files.settings_file import explained
    from refinesynth.settings import RunSettings
    from refinesynth.text.printable import printable

    settings = RunSettings.of({name: value for name, value in asked.items() if name in RunSettings.model_fields})
    values = {name: _plain(getattr(settings, name)) for name in RunSettings.model_fields}
    if "grounding" not in settings.model_fields_set:
        # Said of another play, it would be refused.
        values["grounding"] = None
    origins = {name: origin for origin, layer in layers for name in layer}
    text = explained(RunSettings, values, origin=lambda name: origins.get(name, "default"))
    output().print(printable(text), end="", soft_wrap=True)


def _plain(value: object) -> object:
    """As a file can say it: what a rule or a budget is read from, for a backend what was set."""
    from pydantic import BaseModel

    from refinesynth.backends import Backend
    from refinesynth.run import stable_repr

    if isinstance(value, Backend):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return stable_repr(value) if callable(value) else str(value)
