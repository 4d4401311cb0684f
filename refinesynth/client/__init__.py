"""Requests to models: a pydantic-ai `Model` with rate limiter, retry, budget and journal over one completion function.

This package imports neither litellm nor pydantic-ai; `open_model` does.
"""

from refinesynth.client.model_factory import close_models, open_model, open_models

__all__ = ["close_models", "open_model", "open_models"]
