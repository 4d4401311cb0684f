"""Meaning of an action's text: patterns written by an LLM, executed safely, and the values that they capture."""

from refinesynth.actions.matching import Match, Mismatch, action_form, explain_mismatch, match_action

__all__ = ["Match", "Mismatch", "action_form", "explain_mismatch", "match_action"]
