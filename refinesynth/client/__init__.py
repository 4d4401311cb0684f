"""Requests to models: a pydantic-ai `Model` with rate limiter, retry, budget and journal over one completion function.

Importing this imports neither litellm nor pydantic-ai; `open_model` does.
"""

from refinesynth.client.http.choosing import BackendRow, describe
from refinesynth.client.opening import close_models, open_model, open_models

__all__ = ["BackendRow", "close_models", "describe", "open_model", "open_models"]
