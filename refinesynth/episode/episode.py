"""One episode, from persona to outcome: a script, and one or several plays of it.

Plays run one after the other, each with its own models and random draws: from the beginning, or from a verified prefix
of an earlier play (a branch). The journal numbers the completions of a role within the episode, so an identical request
in a later play is a separate entry.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Literal

from pydantic_ai.models import Model

from refinesynth._version import __version__
from refinesynth.async_contexts import deadline
from refinesynth.backends.backend import Role
from refinesynth.backends.names import PLANNER
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.client.session import CompletionCache, Session
from refinesynth.episode.play import EpisodeContext, EpisodeRecord, EpisodeSettings, Turns, judged
from refinesynth.episode.plays import find
from refinesynth.errors import EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, InputError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.rules.repairs import count_refinements, repairs
from refinesynth.rules.rule import Violation, rejects
from refinesynth.settings import PlaySettings
from refinesynth.trajectory import (
    Branch,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Script,
    ScriptedPersona,
    Trajectory,
    flagged_turns,
)
from refinesynth.world import check_solvability


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
        InputError: The play is unknown, or returned a draft that its verifier had not accepted.
    """
    name = episode_id(persona, index=index, settings=settings)
    session = Session(
        id=name,
        seed=episode_seed(index=index, settings=settings),
        index=index,
        memory=memory,
        tracker=tracker or BudgetTracker(),
        bounded=settings.bounded,
    )
    return await _Episode(EpisodeRecord(session, persona), settings, models).outcome()


class _Episode:
    """Accepted trajectories of an episode, and the reason why there are no more; both grow while it is played."""

    def __init__(self, record: EpisodeRecord, settings: EpisodeSettings, models: Mapping[Role, Model]) -> None:
        self._play, self._record, self._settings, self._models = find(settings.play), record, settings, models
        self._accepted: list[Trajectory] = []
        """Without their shares of the cost, which are known at the end."""
        self._reason: str | None = None
        self._judged = self._doubtful = False
        """Flags: a script or a play failed for another reason than its backend; the settings of the backend may be the
        cause (`EpisodeDoubtful`)."""

    async def outcome(self) -> EpisodeOutcome:
        record, session, settings = self._record, self._record.session, self._settings
        # Completions of the first play include those for the script.
        context = EpisodeContext.of(self._play, settings, record, models=self._models)
        with deadline(settings.deadline) as limit:
            try:
                script = await self._script(context)
                if script is not None:
                    await self._play_all(context, script)
            except EpisodeAbandoned as error:
                self._abandon(error)
        accepted = self._accepted
        lost = limit.passed or not self._judged
        reason = f"not done within its deadline of {settings.deadline:,.0f} s" if limit.passed else self._reason
        refused = record.close()
        charged = (
            trajectory.model_copy(update={"provenance": trajectory.provenance.model_copy(update=dict(share))})
            for trajectory, share in zip(accepted, session.spent.divided(len(accepted)), strict=True)
        )
        return EpisodeOutcome(
            index=session.index,
            id=session.id,
            persona=record.persona,
            trajectories=tuple(charged),
            refused=refused,
            reason=None if accepted else reason,
            lost=lost and not accepted,
            doubtful=self._doubtful and not (accepted or refused or limit.passed),
            salvaged=dict(session.salvaged),
            usage=session.spent.usage,
            cost_usd=session.spent.cost_usd,
        )

    async def _script(self, context: EpisodeContext) -> Script | None:
        """Return the persona's script, if the current rules and play accept it (its run may have had others), or a new
        one; None if none was accepted.
        """
        persona = self._record.persona
        if not isinstance(persona, ScriptedPersona):
            script = await self._play.write(context)
        else:
            script, verdict = persona.script, judged(persona.script, self._settings.script_rules, self._play.needs())
            if not verdict.accepted:
                self._record.refuse_script(script, verdict.violations)
                script = None
        if script is None:
            self._refuse("script")
        return script

    async def _play_all(self, first_context: EpisodeContext, script: Script) -> None:
        """Play all requested trajectories of a script. A failed play does not stop the others."""
        settings, session = self._settings, self._record.session
        script_models = dict(session.answered_by)
        for first in range(0, settings.episodes_per_script * settings.branches, settings.branches):
            session.answered_by = dict(script_models)
            trunk = await self._play_once(first_context, script, first)
            if trunk is None:
                continue
            start = fork(trunk, seed=session.seed, number=first, at_mistakes=settings.repairer == "model")
            # The models of the trunk contributed to its branches.
            trunk_models = dict(session.answered_by) if start else script_models
            for number in range(first + 1, first + settings.branches):
                session.answered_by = dict(trunk_models)
                await self._play_once(first_context, script, number, trunk, start)

    async def _play_once(
        self, first_context: EpisodeContext, script: Script, number: int, trunk: Turns = (), start: Turns = ()
    ) -> Turns | None:
        """Play the script once and return the turns of an accepted draft."""
        record, settings = self._record, self._settings
        record.begin_play()
        context = first_context
        if number:
            context = EpisodeContext.of(self._play, settings, record, models=self._models, number=number)
        try:
            draft = await self._play.play(context, script, start)
        except EpisodeAbandoned as error:
            self._abandon(error)
            return None
        if draft is None:
            self._refuse("draft")
            return None
        if context.verifier.accepted is not draft:
            raise InputError(
                f"the play {self._play.name!r} gave a draft that its verifier did not accept: {self._play!r}"
            )
        if any(draft.turns == known.turns for known in self._accepted):
            record.refuse_draft(draft, (_DUPLICATE_PLAY,))
            self._reason = _DUPLICATE_PLAY.message
            return None
        number_of_plays = settings.episodes_per_script * settings.branches
        pairs = zip(draft.turns, trunk, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        branch = Branch(number=number, of=number_of_plays, shared_turns=shared) if number_of_plays > 1 else None
        trajectory = self._trajectory(context, draft, branch)
        self._accepted.append(trajectory)
        return trajectory.turns

    def _trajectory(self, context: EpisodeContext, draft: Draft, branch: Branch | None) -> Trajectory:
        record, settings, script = self._record, self._settings, draft.script
        by_calls = settings.player_form == "tools" and Role.PLAYER in context.models and not record.in_text
        models = {role.value: model.model_name for role, model in context.models.items()}
        planner = {Role.REPAIRER.value: PLANNER} if settings.repairer == PLANNER else {}
        provenance = Provenance(
            models={**models, **planner, **record.session.answered_by},
            play=settings.play,
            seed=record.session.seed,
            rules=repr(settings.rules),
            package_version=__version__,
            attempts=record.drafts,
            script_attempts=record.scripts,
            script_id=script.digest,
            difficulty=check_solvability(script).difficulty if script.grounded else None,
            refinements=count_refinements(repairs(draft)) if script.grounded else None,
            player_form="tools" if by_calls else None,
            parallel_calls=by_calls and settings.parallel_calls,
            branch=branch,
        )
        name = f"{record.session.id}-{context.number}" if context.number else record.session.id
        values = {"id": name, "persona": record.persona, "script": script, "turns": draft.turns}
        return Trajectory.model_validate({**values, "provenance": provenance})

    def _abandon(self, error: EpisodeAbandoned) -> None:
        self._reason = str(error)
        self._judged |= not isinstance(error, EpisodeLost)
        self._doubtful |= isinstance(error, EpisodeDoubtful)

    def _refuse(self, stage: Literal["script", "draft"]) -> None:
        """Set the reason why no script or draft was accepted: the first rejecting violation of the last refused one."""
        self._judged = True
        tries = self._record.scripts if stage == "script" else self._record.drafts
        refused = self._record.close()
        if not refused or (last := refused[-1]).stage != stage:
            self._reason = f"the play gave no {stage}, and left none that was refused"
            return
        found = next((f"{one.rule}: {one.message}" for one in last.violations if rejects(one)), "")
        self._reason = f"no {stage} was accepted in {tries} attempt{'' if tries == 1 else 's'}; the last: {found}"
        if not tries:
            self._reason = f"the {stage} that was there is not accepted now: {found}"


_DUPLICATE_PLAY = Violation(
    rule="Distinct",
    turn=0,
    code="played_before",
    message=(
        "Turn by turn the same as another trajectory of its episode. Give the models a temperature above 0, or several models "
        "to the role that plays"
    ),
    keeps_prefix=False,
)


def fork(turns: Sequence[DraftTurn], *, seed: int, number: int, at_mistakes: bool = False) -> Turns:
    """Return the prefix of an accepted draft that its branches share.

    The prefix ends after an accepted exchange in the middle third, or with `at_mistakes` after a mistake of the player
    if there is one. The episode's seed and the play's number determine the choice. Without a candidate, the prefix ends
    after the accepted exchange nearest to the middle that leaves turns to play, or is empty.
    """
    answers = [(i + 1, turn) for i, turn in enumerate(turns[:-1]) if isinstance(turn, DungeonMasterTurn)]
    ends = [end for end, turn in answers if not turn.flagged and not turn.transient]
    mistakes = [i for i in flagged_turns(turns) if isinstance(turn := turns[i], PlayerTurn) and turn.by is None]
    candidates = [i + 2 for i in mistakes] if at_mistakes else []
    candidates = candidates or [end for end in ends if len(turns) <= 3 * end <= 2 * len(turns)]
    candidates = candidates or sorted(ends, key=lambda end: abs(2 * end - len(turns)))[:1]
    if not candidates:
        return ()
    draw = int.from_bytes(blake2b(f"{seed}/fork/{number}".encode(), digest_size=8).digest())
    prefix = turns[: candidates[draw % len(candidates)]]
    return tuple(turn for turn in prefix if isinstance(turn, PlayerTurn | DungeonMasterTurn))
