"""Prompt templates, one file per role and play, with their loader."""

from refinesynth.prompts.prompt_library import SHOWN, Examples, Kind, Prompts, drawn, shipped_examples

__all__ = ["SHOWN", "Examples", "Kind", "Prompts", "drawn", "shipped_examples"]
