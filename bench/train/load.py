"""What every trainer is given to do, and what it says about it: JSON between processes of different environments.

Imports nothing but the standard library, so that the others' Pythons can read it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Load:
    """One training of two passes over the data, of which the second is timed."""

    model: str
    """Folder with a model and its tokenizer."""
    data: str
    """File in the trainer's own format."""
    out: str
    """Folder to write to; `timed.json` in it gets the answer."""
    conversations: int
    """Of an optimizer step."""
    rows: int
    """Conversations, or packs, that one forward pass holds where that is the trainer's to be told."""
    max_length: int
    """Tokens of the longest row."""
    device: str
    """cpu or cuda."""
    packing: bool = False
    template: str | None = None
    """File with a chat template that has generation markers."""
    mask_history: bool = False
    """LLaMA-Factory: train on each record's last turn alone."""
    best: bool = False
    """TRL: what it does at its best, on a GPU with Triton and flash attention."""
    flat: bool = False
    """TRL: the conversations of a pass one behind the other in a row, without padding and without packing."""

    def save(self, path: Path) -> None:
        """Write it down for a job."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: str) -> "Load":
        """What `save` wrote."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def answer(self, watch: Any) -> None:
        """Tell what the stopwatch saw of the second pass: its time, its optimizer steps and its memory."""
        told = json.dumps({"seconds": watch.seconds, "steps": watch.steps, "memory": watch.memory})
        (Path(self.out) / "timed.json").write_text(told, encoding="utf-8")
