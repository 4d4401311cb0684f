"""Prompt templates: one file per role and play, loaded, overridden and filled here."""
