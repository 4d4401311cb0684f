"""One run on several cores or machines: its episodes are played by workers on Ray, each with a journal of its own.

The run itself stays in one place: the driver feeds personas, commits outcomes in order, and holds the one budget.
"""

from refinesynth.synthesis.workers.crew import Crew, Driver, open_crew

__all__ = ["Crew", "Driver", "open_crew"]
