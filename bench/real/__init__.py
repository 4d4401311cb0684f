"""Experiment: the part of the data that teaches a pretrained model to repair its mistakes."""
