"""Report of a run as one HTML page: funnel, cost, mistakes, diversity, and its trajectories to read."""

from refinesynth.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
