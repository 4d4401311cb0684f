"""Training data: conversations from run folders, exports and datasets, and the held-out split."""

from refinesynth.train.data.conversation_reader import Reader, Split, read_configured, read_conversations, split
from refinesynth.train.data.record_forms import read_record

__all__ = ["Reader", "Split", "read_configured", "read_conversations", "read_record", "split"]
