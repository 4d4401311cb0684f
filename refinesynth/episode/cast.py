"""The actors of one episode, with its session's models and its bound on completions."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_ai.models import Model

from refinesynth.backends.role import Role
from refinesynth.backends.session import Session
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.errors import ConfigurationError
from refinesynth.roles import Calls, DungeonMaster, Judge, Narrator, Player, ScriptWriter, Verifier


@dataclass(frozen=True)
class Cast:
    """Who plays: a ScriptWriter, a Verifier, and a Narrator or a DungeonMaster with a Player."""

    script_writer: ScriptWriter
    verifier: Verifier
    scene: Narrator | tuple[DungeonMaster, Player]
    models: dict[str, str]
    """Role name to model name, for the record."""


def assemble(settings: EpisodeSettings, *, session: Session, models: Mapping[Role, Model]) -> Cast:
    """Cast the roles that `settings` ask for.

    Raises:
        ConfigurationError: `models` lacks one of them.
    """
    answers, prompts = settings.attempts.answers, settings.prompts
    calls = Calls(most=settings.attempts.calls)
    used: dict[str, str] = {}

    def model(role: Role) -> Model:
        if role not in models:
            raise ConfigurationError(f"no model is given for the role {role.value!r}; got {sorted(models)}")
        used[role.value] = models[role].model_name
        return session.model(role, models[role])

    writer = ScriptWriter(model(Role.SCRIPT_WRITER), prompts, answers=answers, calls=calls)
    if settings.play == "narrated":
        minimum = settings.mistakes.minimum
        scene = Narrator(model(Role.NARRATOR), prompts, minimum=minimum, answers=answers, calls=calls)
    else:
        scene = (
            DungeonMaster(model(Role.DUNGEON_MASTER), prompts, answers=answers, calls=calls),
            Player(model(Role.PLAYER), prompts, answers=answers, calls=calls),
        )
    judge = Judge(model(Role.JUDGE), prompts, answers=answers) if settings.judge else None
    return Cast(script_writer=writer, verifier=Verifier(settings.rules, judge), scene=scene, models=used)
