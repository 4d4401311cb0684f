"""Conversations as token ids and labels, made together, for any chat template."""

from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.fitting import fit
from refinesynth.train.render.react import REACT_TEMPLATE
from refinesynth.train.render.renderer import Renderer

__all__ = ["REACT_TEMPLATE", "Renderer", "RewritesHistoryError", "TemplateError", "fit"]
