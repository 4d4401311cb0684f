"""One episode, from persona to outcome."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from pydantic_ai.models import Model

from refinesynth._version import __version__
from refinesynth.backends.role import Role
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.client.session import CompletionCache, Session, deadline
from refinesynth.client.tracing import ACCEPTED, span
from refinesynth.cost import Cost
from refinesynth.episode.branches import Accepted, SeveralPlays, why_none
from refinesynth.episode.episode_record import EpisodeRecord
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, given_script
from refinesynth.episode.plays import find
from refinesynth.errors import EpisodeAbandoned, EpisodeDoubtful, EpisodeLost
from refinesynth.outcome import EpisodeOutcome
from refinesynth.rules.repairs import count_refinements, repairs
from refinesynth.settings import PlaySettings
from refinesynth.trajectory import Difficulty, Persona, Provenance, Script, ScriptedPersona, Trajectory


def episode_id(persona: Persona, *, index: int, settings: PlaySettings) -> str:
    """Return the persona's global position and eight hexadecimal digits of a hash of its text and the run's seed."""
    digest = blake2b(f"{settings.seed}\n{persona.text}".encode(), digest_size=4).hexdigest()
    return f"{settings.place(index):06d}-{digest}"


def episode_seed(*, index: int, settings: PlaySettings) -> int:
    """Return the episode's own seed, from 0 to 2**31 - 1, a range that every provider accepts."""
    digest = blake2b(f"{settings.seed}/{settings.place(index)}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFF_FFFF


async def play_episode(
    persona: Persona,
    *,
    index: int,
    settings: EpisodeSettings,
    models: Mapping[Role, Model],
    memory: CompletionCache | None = None,
    tracker: EpisodeTracker | None = None,
) -> EpisodeOutcome:
    """Play one episode: return one or several trajectories for a persona, or the reason why there is none.

    The outcome is deterministic for the same persona, index, settings and model answers, except after a deadline; it
    contains no timestamps and no random identifiers. Completions in `memory` are reused, so an interrupted episode
    continues where it stopped. New completions are charged to `tracker`.

    Raises:
        RunStopped: No episode can continue.
        ConfigurationError: `models` lacks a role of the play.
        InputError: The play is unknown.
    """
    name = episode_id(persona, index=index, settings=settings)
    with span("episode", root=True, episode=name, index=index) as current:
        outcome = await _played(
            Session(
                id=name,
                seed=episode_seed(index=index, settings=settings),
                index=index,
                memory=memory,
                tracker=tracker or BudgetTracker(),
                bounded=settings.bounded,
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
    play, record = find(settings.play), EpisodeRecord(session=session, persona=persona)
    context = EpisodeContext.of(play, settings, record, models=models)
    accepted: list[Accepted] = []
    reason: str | None = None
    lost = doubtful = False
    with deadline(settings.deadline) as limit:
        try:
            if isinstance(persona, ScriptedPersona):
                script = given_script(play, context, persona.script)
            else:
                script = await play.write(context)
            if script is None:
                reason = why_none(record, "script")
            else:
                plays = SeveralPlays(play, script, context, models, accepted)
                await plays.all()
                reason, lost, doubtful = plays.reason, not plays.judged, plays.doubtful
        except EpisodeAbandoned as error:
            reason, lost = str(error), isinstance(error, EpisodeLost)
            doubtful = isinstance(error, EpisodeDoubtful)
    if limit.passed:
        lost = True
        reason = f"not done within its deadline of {settings.deadline:,.0f} s"
    return EpisodeOutcome(
        index=session.index,
        id=session.id,
        persona=persona,
        trajectories=_trajectories(accepted, record=record, settings=settings),
        refused=tuple(record.refused),
        reason=None if accepted else reason,
        lost=lost and not accepted,
        doubtful=doubtful and not accepted and not record.refused,
        salvaged=dict(session.salvaged),
        usage=session.spent.usage,
        cost_usd=session.spent.cost_usd,
    )


def _trajectories(
    accepted: Sequence[Accepted], *, record: EpisodeRecord, settings: EpisodeSettings
) -> tuple[Trajectory, ...]:
    """Return the accepted trajectories, each with an equal share of the episode's cost."""
    shares = record.session.spent.divided(len(accepted))
    return tuple(
        _trajectory(one, spent=spent, record=record, settings=settings)
        for one, spent in zip(accepted, shares, strict=True)
    )


def _trajectory(accepted: Accepted, *, spent: Cost, record: EpisodeRecord, settings: EpisodeSettings) -> Trajectory:
    script, number = accepted.draft.script, accepted.branch.number if accepted.branch else 0
    provenance = Provenance(
        models=accepted.models,
        play=settings.play,
        seed=record.session.seed,
        rules=repr(settings.rules),
        package_version=__version__,
        attempts=accepted.attempts,
        script_attempts=record.scripts,
        usage=spent.usage,
        cost_usd=spent.cost_usd,
        script_id=script.digest,
        difficulty=_difficulty(script),
        refinements=count_refinements(repairs(accepted.draft)) if script.grounded else None,
        player_form="tools" if accepted.by_calls else None,
        parallel_calls=accepted.by_calls and settings.parallel_calls,
        branch=accepted.branch,
    )
    return Trajectory.model_validate(
        {
            "id": f"{record.session.id}-{number}" if number else record.session.id,
            "persona": record.persona,
            "script": script,
            "turns": accepted.draft.turns,
            "provenance": provenance,
        }
    )


def _difficulty(script: Script) -> Difficulty | None:
    if not script.grounded:
        return None
    # Imported here because it imports the expression language.
    from refinesynth.world import check_solvability

    return check_solvability(script).difficulty
