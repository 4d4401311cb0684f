"""Rules by name: the built-in ones, and those of installed packages (entry points of the group `refinesynth.rules`)."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from refinesynth.actions.wording import quoted
from refinesynth.errors import InputError
from refinesynth.rules.actions import NoFalseAlarm, ValidActions
from refinesynth.rules.chains import agentrefine, grounded, grounded_script, script, strict
from refinesynth.rules.ending import SucceedsOnce, TaskSucceed, UnflaggedEnding
from refinesynth.rules.form import Alternation, NothingBlank, ReadableText, RequiredKeys
from refinesynth.rules.grounded import Replays
from refinesynth.rules.knowing import KnowsOnlyWhatWasSeen
from refinesynth.rules.leaks import NoLeaks
from refinesynth.rules.letter import ToTheLetter
from refinesynth.rules.limits import SizeLimits, TurnLimit
from refinesynth.rules.observations import FreshObservations
from refinesynth.rules.refinement import EnoughMistakes, NoRepeatedMistake, RealRefinement
from refinesynth.rules.rendering import ReadsBack
from refinesynth.rules.rule import Rule
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    DifficultyBand,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
    ValuesExist,
)
from refinesynth.rules.script_patterns import (
    GroupsFitPlaceholders,
    PatternsAreUnambiguous,
    PatternsCompile,
    PatternsMatchTheirTemplates,
    PatternsNeedText,
)
from refinesynth.rules.script_shape import ActionCount, EnvironmentLimits, PlaceholdersHaveParameters, UniqueNames
from refinesynth.rules.words import WordsAgree

GROUP = "refinesynth.rules"
"""Entry-point group: `MyRule = "my_package.rules:MyRule"`, a class or a function that returns a rule."""

Factory = Callable[..., Rule]
"""What a name stands for: a rule's class, or a function that makes a rule."""

_FACTORIES: tuple[Factory, ...] = (
    agentrefine,
    strict,
    grounded,
    script,
    grounded_script,
    ReadableText,
    RequiredKeys,
    ValidActions,
    UnflaggedEnding,
    TaskSucceed,
    EnoughMistakes,
    ToTheLetter,
    Alternation,
    NothingBlank,
    ReadsBack,
    SucceedsOnce,
    RealRefinement,
    NoRepeatedMistake,
    NoFalseAlarm,
    NoLeaks,
    FreshObservations,
    TurnLimit,
    SizeLimits,
    Replays,
    WordsAgree,
    KnowsOnlyWhatWasSeen,
    ActionCount,
    UniqueNames,
    PlaceholdersHaveParameters,
    EnvironmentLimits,
    PatternsCompile,
    GroupsFitPlaceholders,
    PatternsNeedText,
    PatternsMatchTheirTemplates,
    PatternsAreUnambiguous,
    RulebookCompiles,
    GoalFitsConditions,
    ValuesExist,
    RulebookRuns,
    NotYetDone,
    SolutionWorks,
    Solvable,
    ActionsUsable,
    DifficultyBand,
)

BUILT_IN: Mapping[str, Factory] = MappingProxyType({factory.__name__: factory for factory in _FACTORIES})
"""Name to factory of what comes with the package. An entry point of the same name does not replace it."""


def available() -> dict[str, str]:
    """Every name that `parse` knows, with one line about it; other packages' rules are named but not loaded."""
    known = {name: _summary(factory) for name, factory in BUILT_IN.items()}
    for name, entry in _installed().items():
        known.setdefault(name, f"from {entry.value}")
    return known


def find(name: str) -> Factory:
    """The factory of that name; an entry point is loaded now.

    Raises:
        InputError: No such name, or the entry point cannot be loaded.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    installed = _installed()
    if name not in installed:
        raise InputError(_unknown(name, [*BUILT_IN, *installed]))
    entry = installed[name]
    try:
        found = cast("object", entry.load())
    except Exception as error:  # Whatever another package's import raises.
        raise InputError(f"the rule {name!r} cannot be loaded from {entry.value!r}: {error!r}") from error
    if not callable(found):
        raise InputError(f"the rule {name!r} is {found!r} in {entry.value!r}; a class or a function is expected")
    return cast("Factory", found)


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _summary(factory: Factory) -> str:
    return (inspect.getdoc(factory) or "").partition("\n")[0]


def _unknown(name: str, names: list[str]) -> str:
    lower = {known.casefold(): known for known in names}
    near = [lower[match] for match in difflib.get_close_matches(name.casefold(), lower, n=3)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"there is no rule {quoted(name)}.{meant} Known rules: {', '.join(sorted(names, key=str.casefold))}."
