"""Training data: conversations out of run folders, exports and datasets, and what of them is held out."""

import sys

from refinesynth.train.data import conversation_reader
from refinesynth.train.data.conversation_reader import Reading, Split, read_configured, read_conversations, split
from refinesynth.train.data.record_forms import read_record

__all__ = ["Reading", "Split", "read_configured", "read_conversations", "read_record", "split"]

sys.modules[f"{__name__}.reading"] = conversation_reader  # its old name, which works for one release
