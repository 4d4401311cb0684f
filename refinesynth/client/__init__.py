"""Requests to models: a pydantic-ai `Model` with rate limiter, retry, budget and journal over one completion function.

This package imports neither litellm nor pydantic-ai; `open_model` does.
"""

from refinesynth.client.http.transport import BackendRow, describe
from refinesynth.client.model_factory import close_models, open_model, open_models

__all__ = ["BackendRow", "close_models", "describe", "open_model", "open_models"]
