"""Run folders in object stores: kept there while a run goes on, and restored on another machine.

A run is played in a local work folder. What is new goes up as numbered segments: each holds the paid completions and
finished episodes that earlier ones lack, with their lines. A segment is one object that is created only if absent and
never written again, so it is whole or missing, and of two processes that write the next one, the second is refused.
"""

from refinesynth.stores.run_output import fetch, opened_output, work_folder

__all__ = ["fetch", "opened_output", "work_folder"]
