"""Package version, stored in every artefact of a run."""

__version__ = "0.1.0"
