"""Text environments, one file each. They know nothing of Inspect, of models or of each other."""
