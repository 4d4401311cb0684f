"""Programs that measure refinesynth; `python -m bench` runs them all, `python -m bench.NAME` one."""
