"""One run on several cores: its episodes are played in processes of their own, each with a journal of its own.

The run itself stays in one place: the parent feeds personas, commits outcomes in order, and holds the one budget.
"""

from refinesynth.synthesis.shards.crew import open_crew

__all__ = ["open_crew"]
