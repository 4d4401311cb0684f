"""The actors of one episode, with its session's models and its bound on completions."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_ai.models import Model

from refinesynth.backends.mixed import in_turn
from refinesynth.backends.role import Role
from refinesynth.backends.session import Session
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.errors import ConfigurationError
from refinesynth.roles import (
    Calls,
    DungeonMaster,
    Judge,
    Narrator,
    Player,
    RulebookWriter,
    ScriptWriter,
    Verifier,
)


@dataclass(frozen=True)
class Cast:
    """Who plays: a ScriptWriter, a Verifier, and a Narrator or a Player with a DungeonMaster; an executed world needs none."""

    script_writer: ScriptWriter | RulebookWriter
    verifier: Verifier
    scene: Narrator | tuple[DungeonMaster | None, Player]
    models: dict[str, str]
    """Role name to model name, for the record."""


def assemble(settings: EpisodeSettings, *, session: Session, models: Mapping[Role, Model], number: int = 0) -> Cast:
    """Cast the roles that `settings` ask for, for the episode's play of this number, from 0.

    Where a role has several models, plays and episodes take one each in turn.

    Raises:
        ConfigurationError: `models` lacks one of them.
    """
    answers, prompts = settings.attempts.answers, settings.prompts
    calls = Calls(most=settings.attempts.calls)
    used: dict[str, str] = {}

    def model(role: Role) -> Model:
        if role not in models:
            raise ConfigurationError(f"no model is given for the role {role.value!r}; got {sorted(models)}")
        chosen = in_turn(models[role], session.index + number)
        used[role.value] = chosen.model_name
        return session.model(role, chosen)

    writes = RulebookWriter if settings.play == "grounded" else ScriptWriter
    writer = writes(model(Role.SCRIPT_WRITER), prompts, answers=answers, seed=session.seed, calls=calls)
    if settings.play == "narrated":
        # What is asked for is never less than what is refused.
        minimum = max(settings.mistakes.minimum, prompts.required.get("EnoughMistakes", {}).get("minimum", 0))
        scene = Narrator(
            model(Role.NARRATOR), prompts, minimum=minimum, seed=session.seed, answers=answers, calls=calls
        )
    else:
        master = None
        if Role.DUNGEON_MASTER in settings.roles:
            master = DungeonMaster(model(Role.DUNGEON_MASTER), prompts, answers=answers, calls=calls)
        scene = master, Player(model(Role.PLAYER), prompts, answers=answers, calls=calls)
    judge = Judge(model(Role.JUDGE), prompts, answers=answers) if settings.judge else None
    return Cast(script_writer=writer, verifier=Verifier(settings.rules, judge), scene=scene, models=used)
