"""Composable verifier rules: what a draft must satisfy to be kept."""

from refinesynth.actions.matching import Match, Mismatch, explain_mismatch, match_action
from refinesynth.rules.actions import NoFalseAlarm, ValidActions
from refinesynth.rules.chains import agentrefine, script, strict
from refinesynth.rules.ending import SucceedsOnce, TaskSucceed, UnflaggedEnding
from refinesynth.rules.form import Alternation, NothingBlank, ReadableText, RequiredKeys
from refinesynth.rules.leaks import LEAKS, NoLeaks
from refinesynth.rules.limits import SizeLimits, TurnLimit
from refinesynth.rules.observations import FreshObservations
from refinesynth.rules.parsing import parse
from refinesynth.rules.refinement import EnoughMistakes, NoRepeatedMistake, RealRefinement
from refinesynth.rules.registry import available
from refinesynth.rules.rendering import ReadsBack
from refinesynth.rules.rule import (
    FIELDS,
    All,
    BaseRule,
    Either,
    FirstFailure,
    Not,
    Rule,
    Severity,
    Verdict,
    Violation,
    Warn,
    all_of,
    first_failure,
    rejects,
    verify,
    warn,
)
from refinesynth.rules.script_patterns import (
    GroupsFitPlaceholders,
    PatternsAreUnambiguous,
    PatternsCompile,
    PatternsMatchTheirTemplates,
    PatternsNeedText,
)
from refinesynth.rules.script_shape import (
    ActionCount,
    EnvironmentLimits,
    PlaceholdersHaveParameters,
    ScriptRule,
    UniqueNames,
)

__all__ = [
    "FIELDS",
    "LEAKS",
    "ActionCount",
    "All",
    "Alternation",
    "BaseRule",
    "Either",
    "EnoughMistakes",
    "EnvironmentLimits",
    "FirstFailure",
    "FreshObservations",
    "GroupsFitPlaceholders",
    "Match",
    "Mismatch",
    "NoFalseAlarm",
    "NoLeaks",
    "NoRepeatedMistake",
    "Not",
    "NothingBlank",
    "PatternsAreUnambiguous",
    "PatternsCompile",
    "PatternsMatchTheirTemplates",
    "PatternsNeedText",
    "PlaceholdersHaveParameters",
    "ReadableText",
    "ReadsBack",
    "RealRefinement",
    "RequiredKeys",
    "Rule",
    "ScriptRule",
    "Severity",
    "SizeLimits",
    "SucceedsOnce",
    "TaskSucceed",
    "TurnLimit",
    "UnflaggedEnding",
    "UniqueNames",
    "ValidActions",
    "Verdict",
    "Violation",
    "Warn",
    "agentrefine",
    "all_of",
    "available",
    "explain_mismatch",
    "first_failure",
    "match_action",
    "parse",
    "rejects",
    "script",
    "strict",
    "verify",
    "warn",
]
