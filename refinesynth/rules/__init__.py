"""Composable verifier rules: what a draft must satisfy to be kept."""

from refinesynth.actions.matching import Match, Mismatch, explain_mismatch, match_action
from refinesynth.rules.actions import NoFalseAlarm, ValidActions
from refinesynth.rules.chains import agentrefine, grounded, grounded_script, script, strict
from refinesynth.rules.ending import SucceedsOnce, TaskSucceed, UnflaggedEnding
from refinesynth.rules.form import Alternation, NothingBlank, ReadableText, RequiredKeys
from refinesynth.rules.grounded import Replays
from refinesynth.rules.knowing import KnowsOnlyWhatWasSeen
from refinesynth.rules.leaks import LEAKS, NoLeaks
from refinesynth.rules.letter import ToTheLetter
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
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    DifficultyBand,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
    Stage,
    ValuesExist,
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
from refinesynth.rules.words import WordsAgree, judge_words

__all__ = [
    "FIELDS",
    "LEAKS",
    "ActionCount",
    "ActionsUsable",
    "All",
    "Alternation",
    "BaseRule",
    "DifficultyBand",
    "Either",
    "EnoughMistakes",
    "EnvironmentLimits",
    "FirstFailure",
    "FreshObservations",
    "GoalFitsConditions",
    "GroupsFitPlaceholders",
    "KnowsOnlyWhatWasSeen",
    "Match",
    "Mismatch",
    "NoFalseAlarm",
    "NoLeaks",
    "NoRepeatedMistake",
    "Not",
    "NotYetDone",
    "NothingBlank",
    "PatternsAreUnambiguous",
    "PatternsCompile",
    "PatternsMatchTheirTemplates",
    "PatternsNeedText",
    "PlaceholdersHaveParameters",
    "ReadableText",
    "ReadsBack",
    "RealRefinement",
    "Replays",
    "RequiredKeys",
    "Rule",
    "RulebookCompiles",
    "RulebookRuns",
    "ScriptRule",
    "Severity",
    "SizeLimits",
    "SolutionWorks",
    "Solvable",
    "Stage",
    "SucceedsOnce",
    "TaskSucceed",
    "ToTheLetter",
    "TurnLimit",
    "UnflaggedEnding",
    "UniqueNames",
    "ValidActions",
    "ValuesExist",
    "Verdict",
    "Violation",
    "Warn",
    "WordsAgree",
    "agentrefine",
    "all_of",
    "available",
    "explain_mismatch",
    "first_failure",
    "grounded",
    "grounded_script",
    "judge_words",
    "match_action",
    "parse",
    "rejects",
    "script",
    "strict",
    "verify",
    "warn",
]
