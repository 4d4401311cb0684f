"""One run on several cores or machines: blocks of its personas are played by tasks on Ray.

The run itself stays in one place: the driver feeds personas, commits outcomes and completions, and holds the budget.
"""

from refinesynth.synthesis.workers.blocks import Blocks, open_blocks

__all__ = ["Blocks", "open_blocks"]
