"""Prompt templates: one file per role and play, loaded, overridden and filled here."""

from refinesynth.prompts.fewshot import SHOWN, Examples, Kind, drawn, shipped_examples
from refinesynth.prompts.library import Prompts

__all__ = ["SHOWN", "Examples", "Kind", "Prompts", "drawn", "shipped_examples"]
