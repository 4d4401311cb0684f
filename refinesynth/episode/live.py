"""Live play: DungeonMaster and Player converse turn by turn, and the DungeonMaster imagines the world."""

from refinesynth.backends.role import Role
from refinesynth.episode.conversation import Conversation, RetryFeedback
from refinesynth.episode.play import EpisodeContext, Play, Turns
from refinesynth.roles import DungeonMaster
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script


class LivePlay(Play):
    """DungeonMaster and Player converse turn by turn."""

    name = "live"

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        if context.settings.server is not None:
            # Imported here: most plays have no server.
            from refinesynth.episode.mcp_play import McpConversation

            return await McpConversation(context, script).play(start)
        return await Live(context, script).play(start)


LIVE = LivePlay()


class Live(Conversation):
    def __init__(self, context: EpisodeContext, script: Script) -> None:
        super().__init__(context, script)
        self.dungeon_master = context.actor(DungeonMaster, Role.DUNGEON_MASTER)

    async def _exchange(self, turns: Turns, taken: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        act = await self._act(turns, taken)
        # The player is not asked to end: it knows of no turns, and its chat is what training sees.
        limit = self.settings.max_turns if self._is_long(turns) else None
        answer = await self.dungeon_master.narrate(
            self.script, turns, act.action, violations=taken.dungeon_master, limit=limit
        )
        return act, answer
