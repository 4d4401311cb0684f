"""Conversations as token ids and labels, made together, for any chat template."""

from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.renderer import Renderer

__all__ = ["Renderer", "RewritesHistoryError", "TemplateError"]
