"""The run folder: what was asked, what came out, what was refused and why."""
