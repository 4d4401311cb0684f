"""Evaluations compared: scores with intervals, paired differences, the paper's published rows beside them."""
