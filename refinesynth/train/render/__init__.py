"""Conversations as token ids and labels, made together, for any chat template."""

from refinesynth.train.render.renderer import Renderer
from refinesynth.train.render.template import RewritesHistoryError, TemplateError

__all__ = ["Renderer", "RewritesHistoryError", "TemplateError"]
