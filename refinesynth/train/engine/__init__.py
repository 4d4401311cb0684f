"""Refinement tuning with torch.

launch(config, events=...)      train on this rank, alone or under torchrun
plan(config)                    plan only: loads no weights, writes nothing
"""

from refinesynth.train.engine.launcher import launch, plan

__all__ = ["launch", "plan"]
