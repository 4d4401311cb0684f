"""Comparison of evaluations: scores with intervals, paired differences and the paper's published rows."""
