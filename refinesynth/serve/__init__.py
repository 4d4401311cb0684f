"""OpenAI-compatible HTTP server on this machine around a completion function, with latency, for load tests."""

from refinesynth.serve.server import create_app, running, serve

__all__ = ["create_app", "running", "serve"]
