"""Run folders in object stores: uploaded during a run, and restored on another machine.

A run works in a local folder and uploads numbered segments. Each segment holds the paid completions and ended episodes
that earlier segments lack, with their lines. A segment is one object, created only if absent and never overwritten: it
is complete or missing, and if two processes write the same number, the second one fails.
"""

from refinesynth.stores.run_output import fetch, opened_output, work_folder

__all__ = ["fetch", "opened_output", "work_folder"]
