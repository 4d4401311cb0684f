"""Refinement tuning with torch: one rank's whole job, and how many ranks are started.

    run(config, events=...)         here and now, on this rank (under torchrun: on every rank)
    launch(config, events=...)      in place, or as `config.processes` processes of this machine
    plan(config)                    what it will do and take; no weights are loaded and nothing is written

Importing this package imports no torch; calling does.
"""

from refinesynth.train.engine.launching import launch, plan, run

__all__ = ["launch", "plan", "run"]
