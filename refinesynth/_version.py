"""The package version, stored in every artefact that a run writes."""

__version__ = "0.1.0"
