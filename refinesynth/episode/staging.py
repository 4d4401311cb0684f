"""Which kind of conversation plays a script."""

from refinesynth.episode.conversation import Conversation
from refinesynth.episode.grounded import Grounded
from refinesynth.episode.live import Live
from refinesynth.episode.record import Record
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import DungeonMaster, Player, Verifier
from refinesynth.trajectory import Script


def staged(
    scene: tuple[DungeonMaster | None, Player],
    *,
    verifier: Verifier,
    script: Script,
    record: Record,
    settings: EpisodeSettings,
) -> Conversation:
    """A conversation of the kind that the settings ask for: live, or grounded where the world is executed."""
    dungeon_master, player = scene
    index = record.session.index
    if settings.play == "grounded" or dungeon_master is None:
        return Grounded(
            dungeon_master=dungeon_master,
            player=player,
            verifier=verifier,
            script=script,
            index=index,
            record=record,
            settings=settings,
        )
    return Live(
        dungeon_master=dungeon_master,
        player=player,
        verifier=verifier,
        script=script,
        index=index,
        record=record,
        settings=settings,
    )
