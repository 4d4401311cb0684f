"""Composable verifier rules: what a draft must satisfy to be kept."""

from refinesynth.rules.rule import (
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

__all__ = [
    "All",
    "BaseRule",
    "Either",
    "FirstFailure",
    "Not",
    "Rule",
    "Severity",
    "Verdict",
    "Violation",
    "Warn",
    "all_of",
    "first_failure",
    "rejects",
    "verify",
    "warn",
]
