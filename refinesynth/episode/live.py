"""Live play: DungeonMaster and Player talk turn by turn, and the DungeonMaster imagines the world."""

from refinesynth.backends.backend import Role
from refinesynth.episode.conversation import Conversation, RetryFeedback
from refinesynth.episode.play import EpisodeContext, Play, Turns
from refinesynth.roles import DungeonMaster
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script


class LivePlay(Play):
    """Turn-by-turn play in an imagined world."""

    name = "live"

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        if context.settings.server is not None:
            # Imported here because most plays have no server.
            from refinesynth.episode.mcp_play import McpConversation

            return await McpConversation(context, script).play(start)
        return await Live(context, script).play(start)


LIVE = LivePlay()


class Live(Conversation):
    def __init__(self, context: EpisodeContext, script: Script) -> None:
        super().__init__(context, script)
        self.dungeon_master = context.actor(DungeonMaster, Role.DUNGEON_MASTER)

    async def _exchange(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        act = await self._act(turns, feedback)
        # The player gets no reminder to finish: it does not know about turns, and training sees its chat.
        max_turns = self.settings.max_turns
        limit = max_turns if self.reached_turn_limit or 2 * len(turns) >= max_turns else None
        reasons = feedback.dungeon_master
        return act, await self.dungeon_master.narrate(self.script, turns, act.action, violations=reasons, limit=limit)
