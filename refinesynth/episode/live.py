"""Live play: DungeonMaster and Player converse turn by turn, and the DungeonMaster imagines the world."""

from dataclasses import dataclass

from refinesynth.chat import render_turns
from refinesynth.episode.conversation import Conversation, TakenBack, Turns
from refinesynth.roles import DungeonMaster
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn


@dataclass(kw_only=True)
class Live(Conversation):
    """One script being played by a DungeonMaster and a Player."""

    dungeon_master: DungeonMaster

    async def _exchange(self, turns: Turns, told: TakenBack) -> tuple[PlayerTurn, DungeonMasterTurn]:
        mistake = self.settings.mistakes.ask(turns, episode=self.index + self.replica, attempt=self.record.drafts)
        act = await self.player.act(render_turns(self.script, turns), mistake=mistake, violations=told.player)
        # The player is told nothing: it knows of no turns, and its chat is what training sees.
        limit = self.settings.max_turns if self._is_long(turns) else None
        answer = await self.dungeon_master.narrate(
            self.script, turns, act.action, violations=told.dungeon_master, limit=limit
        )
        return act, answer
