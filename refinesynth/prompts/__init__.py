"""Prompt templates: one file per role and play, loaded, overridden and filled here."""

from refinesynth.prompts.fewshot import Examples, shipped_examples
from refinesynth.prompts.library import Prompts

__all__ = ["Examples", "Prompts", "shipped_examples"]
