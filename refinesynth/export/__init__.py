"""Trajectories in the formats that trainers read, each with its loss flags."""
