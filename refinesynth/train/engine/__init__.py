"""Refinement tuning with torch.

launch(config, events=...)      on this rank (under torchrun), or as `config.processes` processes of this machine
plan(config)                    plan only: loads no weights, writes nothing
"""

from refinesynth.train.engine.launcher import launch, plan

__all__ = ["launch", "plan"]
