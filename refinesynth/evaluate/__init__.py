"""Agents in environments that they have never seen, on Inspect AI: an episode whose DungeonMaster is a real environment."""
