"""The same simple job in two neighbours, each in an environment of its own, and in refinesynth."""
