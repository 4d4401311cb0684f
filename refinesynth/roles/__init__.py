"""The typed actors: ScriptWriter, DungeonMaster, Player, Narrator, Verifier."""
