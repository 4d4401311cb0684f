"""Training data: conversations out of run folders, exports and datasets, and what of them is held out."""

from refinesynth.train.data.reading import Reading, Split, read_configured, read_conversations, split
from refinesynth.train.data.shapes import read_record

__all__ = ["Reading", "Split", "read_configured", "read_conversations", "read_record", "split"]
