"""One episode from its persona to its outcome."""

from collections.abc import Mapping

from pydantic_ai.models import Model

from refinesynth._version import __version__
from refinesynth.backends.account import Forgetful, Memory, Purse, Unlimited
from refinesynth.backends.governing.deadline import deadline
from refinesynth.backends.role import Role
from refinesynth.backends.session import Session
from refinesynth.episode.cast import Cast, assemble
from refinesynth.episode.identity import episode_id, episode_seed
from refinesynth.episode.live import Live
from refinesynth.episode.narrated import play_narrated
from refinesynth.episode.record import Record
from refinesynth.episode.scripting import write_script
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.errors import EpisodeAbandoned
from refinesynth.outcome import EpisodeOutcome
from refinesynth.roles import Narrator
from refinesynth.rules.rule import rejects
from refinesynth.tracing import ACCEPTED, span
from refinesynth.trajectory import Draft, Persona, Provenance, Script, Trajectory


async def play_episode(
    persona: Persona,
    *,
    index: int,
    settings: EpisodeSettings,
    models: Mapping[Role, Model],
    memory: Memory | None = None,
    purse: Purse | None = None,
) -> EpisodeOutcome:
    """Turn one persona into a trajectory, or say why there is none.

    With models that answer alike, the same persona, index and settings give the same outcome, byte for byte: there are no
    clocks and no random identifiers in it, unless it is over its deadline. What `memory` holds is not asked for again, so
    an episode that was interrupted goes on where it was; what is asked for is paid from `purse`.

    Raises:
        RunStopped: No episode can go on.
        ConfigurationError: `models` lacks a role that `settings` ask for.
    """
    name = episode_id(persona, index=index, seed=settings.seed)
    with span("episode", root=True, episode=name, index=index) as current:
        outcome = await _played(
            Session(
                id=name,
                seed=episode_seed(index=index, seed=settings.seed),
                index=index,
                memory=memory or Forgetful(),
                purse=purse or Unlimited(),
            ),
            persona,
            settings,
            models,
        )
        current.set_attribute(ACCEPTED, outcome.accepted)
    return outcome


async def _played(
    session: Session, persona: Persona, settings: EpisodeSettings, models: Mapping[Role, Model]
) -> EpisodeOutcome:
    cast = assemble(settings, session=session, models=models)
    record = Record(session=session, persona=persona)
    draft: Draft | None = None
    reason: str | None = None
    with deadline(settings.deadline) as limit:
        try:
            script = await write_script(cast.script_writer, record, settings)
            if script is not None:
                draft = await _play(cast, script, record, settings)
            if draft is None:
                reason = _reason(record)
        except EpisodeAbandoned as error:
            reason = str(error)
    if limit.passed:
        reason = f"not done within its deadline of {settings.deadline:,.0f} s"
    trajectory = None
    if draft is not None:
        trajectory = _trajectory(draft, record=record, session=session, cast=cast, settings=settings)
    return EpisodeOutcome(
        index=session.index,
        id=session.id,
        persona=persona,
        trajectory=trajectory,
        refused=tuple(record.refused),
        reason=reason,
        usage=session.ledger.usage,
        cost_usd=session.ledger.cost_usd,
    )


async def _play(cast: Cast, script: Script, record: Record, settings: EpisodeSettings) -> Draft | None:
    if isinstance(cast.scene, Narrator):
        return await play_narrated(cast.scene, cast.verifier, script, record, settings)
    dungeon_master, player = cast.scene
    live = Live(
        dungeon_master=dungeon_master,
        player=player,
        verifier=cast.verifier,
        script=script,
        index=record.session.index,
        record=record,
        settings=settings,
    )
    return await live.play()


def _reason(record: Record) -> str:
    """Why the attempts were not enough: the last violation, which was told and not mended."""
    last = record.refused[-1]
    tried = record.scripts if last.stage == "script" else record.drafts
    found = next((f"{violation.rule}: {violation.message}" for violation in last.violations if rejects(violation)), "")
    return f"no {last.stage} was accepted in {tried} attempt{'' if tried == 1 else 's'}; the last: {found}"


def _trajectory(draft: Draft, *, record: Record, session: Session, cast: Cast, settings: EpisodeSettings) -> Trajectory:
    provenance = Provenance(
        models={**cast.models, **session.answered_by},
        play=settings.play,
        seed=session.seed,
        rules=repr(settings.rules),
        package_version=__version__,
        attempts=record.drafts,
        script_attempts=record.scripts,
        usage=session.ledger.usage,
        cost_usd=session.ledger.cost_usd,
    )
    return Trajectory.model_validate(
        {
            "id": record.episode,
            "persona": record.persona,
            "script": draft.script,
            "turns": draft.turns,
            "provenance": provenance,
        }
    )
