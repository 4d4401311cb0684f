"""Text environments, one file each. They do not depend on Inspect, on models or on each other."""
