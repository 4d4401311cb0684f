"""What a person types after an option, read into the values that `synthesize` takes."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from refinesynth.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from refinesynth.attempts import Attempts
    from refinesynth.mistakes import Mistakes
    from refinesynth.rules import Rule

_ROLE = re.compile(r"([A-Za-z][A-Za-z_-]*)=(.*)", re.DOTALL)
"""`player=gpt-4o`; the part before the sign is a word, which no model string with a provider is."""


def backend_spec(given: Sequence[str]) -> str | dict[str, str] | None:
    """`--backend`, given any number of times: one for all roles, or `ROLE=SPEC`; None if it was not given.

    Raises:
        ConfigurationError: No such role, or one role twice. Whether the backends exist is not looked at.
    """
    from refinesynth.backends.role import Role

    known = ["default", *(role.value for role in Role)]
    chosen: dict[str, str] = {}
    for text in given:
        named = _ROLE.fullmatch(text.strip())
        role, spec = (named[1].casefold().replace("-", "_"), named[2]) if named else ("default", text)
        if role not in known:
            near = get_close_matches(role, known, n=1)
            raise ConfigurationError(
                f"--backend {text!r}: there is no role {role!r}; the roles are {', '.join(known)}"
                + (f". Did you mean {near[0]}={spec}?" if near else "")
            )
        if role in chosen:
            raise ConfigurationError(f"--backend: {role} is given twice, {chosen[role]!r} and {spec!r}; give it once")
        if not spec.strip():
            raise ConfigurationError(f"--backend {text!r} names no backend; `refinesynth backends` lists the names")
        chosen[role] = spec.strip()
    if not chosen:
        return None
    return chosen["default"] if chosen.keys() == {"default"} else chosen


def mistakes_policy(text: str) -> "Mistakes":
    """`natural`, `prompted`, `prompted=1,4` (player turns from 0), `at_least`, `at_least=2`.

    Raises:
        ConfigurationError: It is none of these.
    """
    from refinesynth.mistakes import at_least, natural, prompted

    policy, _, numbers = text.strip().casefold().replace("-", "_").partition("=")
    try:
        wanted = [int(number) for number in numbers.split(",")] if numbers else []
    except ValueError:
        wanted = [-1]
    if min(wanted, default=0) >= 0:
        if policy == "natural" and not wanted:
            return natural()
        if policy == "prompted":
            return prompted(*wanted)
        if policy == "at_least" and len(wanted) <= 1:
            return at_least(*wanted)
    raise ConfigurationError(
        f"--mistakes {text!r} is none of: natural, prompted, prompted=1,4 (player turns, from 0), at_least=2"
    )


def attempts_bounds(text: str) -> "Attempts":
    """`drafts=4,scripts=3,calls=8,answers=2`, each as wanted; a bare number is `drafts`.

    Raises:
        ConfigurationError: A name or a number that there is not.
    """
    from pydantic import ValidationError

    from refinesynth.attempts import Attempts
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
    from refinesynth.presets import paper

    return paper()
