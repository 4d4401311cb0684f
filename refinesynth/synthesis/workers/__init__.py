"""One run on several cores or machines: its episodes are played by workers on Ray, each with a journal of its own.

The run itself stays in one place: the driver feeds personas, commits outcomes in order, and holds the one budget.
"""

from refinesynth.synthesis.workers.crew import Crew, open_crew
from refinesynth.synthesis.workers.member import Driver

__all__ = ["Crew", "Driver", "open_crew"]
