"""Run folders in object stores: kept there while a run goes on, and made anew from there on another machine.

A run is played in a work folder on the local disk. What is new in it goes up as segments, numbered from 1: each holds
the paid completions and finished episodes that the ones before had not, with their lines. A segment is one object that
is made if it is absent and never written again, so it is there whole or not at all, and two processes cannot both write
the one after the last: the second is refused.
"""

from refinesynth.stores.fetching import fetch
from refinesynth.stores.output import opened_output, work_folder

__all__ = ["fetch", "opened_output", "work_folder"]
