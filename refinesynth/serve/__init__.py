"""A completion function as an OpenAI-compatible HTTP server on this machine, for load and fault tests."""

from refinesynth.serve.faults import NAMES, HttpFaults, parse_duration, parse_faults
from refinesynth.serve.running import create_app, running, serve

__all__ = ["NAMES", "HttpFaults", "create_app", "parse_duration", "parse_faults", "running", "serve"]
