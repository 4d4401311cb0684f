"""Meaning of an action's text: safe execution of an LLM's patterns, and the values that they capture."""

from refinesynth.actions.matching import Match, Mismatch, action_form, explain_mismatch, match_action

__all__ = ["Match", "Mismatch", "action_form", "explain_mismatch", "match_action"]
