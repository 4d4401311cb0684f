"""Run on several cores or machines: Ray tasks play blocks of personas.

The driver feeds personas, commits outcomes and completions, and holds the budget.
"""

from refinesynth.synthesis.workers.block_driver import Blocks

__all__ = ["Blocks"]
