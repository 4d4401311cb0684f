"""Refinement tuning with torch.

run(config, events=...)         on this rank (under torchrun: on every rank)
launch(config, events=...)      in place, or as `config.processes` processes of this machine
plan(config)                    plan only: loads no weights, writes nothing
"""

from refinesynth.train.engine.launching import launch, plan, run

__all__ = ["launch", "plan", "run"]
