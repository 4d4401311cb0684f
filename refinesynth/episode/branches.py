"""Several trajectories of one script: plays from the beginning, and branches from a verified prefix of a play.

Plays run one after the other, each with its own models and random draws. The journal numbers the completions of a role
within the episode, so an identical request in a later play is a separate entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from typing import Literal

from pydantic_ai.models import Model

from refinesynth.backends.role import Role
from refinesynth.episode.episode_record import EpisodeRecord
from refinesynth.episode.play import EpisodeContext, Play, Turns
from refinesynth.errors import EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, InputError
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Branch, Draft, DraftTurn, DungeonMasterTurn, PlayerTurn, Script, flagged_turns


@dataclass(frozen=True)
class Accepted:
    """An accepted draft with its origin."""

    draft: Draft
    attempts: int
    """Drafts of its play, including this one."""
    asked: dict[str, str]
    answered: dict[str, str]
    """Role name to the models that answered, including those of the prefix."""
    by_calls: bool
    """True if the player was asked with tool calls."""
    branch: Branch | None
    """None for an episode with a single trajectory."""

    @property
    def models(self) -> dict[str, str]:
        return {**self.asked, **self.answered}


@dataclass
class SeveralPlays:
    """All plays of one script. A failed play does not stop the others; accepted drafts are kept."""

    play: Play
    script: Script
    first: EpisodeContext
    """Context of the first play. Its completions include those for the script."""
    models: Mapping[Role, Model]
    accepted: list[Accepted] = field(default_factory=list[Accepted])
    """Accepted drafts in order; grows during the plays."""
    reason: str | None = None
    judged: bool = False
    """True if a play failed for another reason than its backend."""
    doubtful: bool = field(default=False, init=False)
    """True if the settings of a backend may be the cause (`EpisodeDoubtful`)."""

    def __post_init__(self) -> None:
        self.record, self.settings = self.first.record, self.first.settings

    async def all(self) -> None:
        """Play all requested trajectories.

        Raises:
            InputError: A play returned a draft that its verifier had not accepted.
            RunStopped: No episode can continue.
        """
        branches, session = self.settings.branches, self.record.session
        written = dict(session.answered_by)
        for first in range(0, self.settings.episodes_per_script * branches, branches):
            session.answered_by = dict(written)
            trunk = await self._one(first)
            if trunk is None:
                continue
            taught = self.settings.repairer is not None
            start = fork(trunk.draft.turns, seed=session.seed, number=first, at_mistakes=taught)
            for number in range(first + 1, first + branches):
                # The models of the trunk contributed to its branches.
                session.answered_by = dict(trunk.answered if start else written)
                await self._one(number, trunk, start)

    async def _one(self, number: int, trunk: Accepted | None = None, start: Turns = ()) -> Accepted | None:
        self.record.begin_play()
        context = self.first
        if number:
            context = EpisodeContext.of(self.play, self.settings, self.record, models=self.models, number=number)
        try:
            draft = await self.play.play(context, self.script, start)
        except EpisodeAbandoned as error:
            self.reason = str(error)
            self.judged |= not isinstance(error, EpisodeLost)
            self.doubtful |= isinstance(error, EpisodeDoubtful)
            return None
        if draft is None:
            self.judged = True
            self.reason = why_none(self.record, "draft")
            return None
        if context.verifier.accepted is not draft:
            raise InputError(
                f"the play {self.play.name!r} gave a draft that its verifier did not accept: {self.play!r}"
            )
        if any(draft.turns == known.draft.turns for known in self.accepted):
            self.record.refuse_draft(draft, (_THE_SAME,))
            self.reason = _THE_SAME.message
            return None
        of = self.settings.episodes_per_script * self.settings.branches
        shared = 0 if trunk is None else _shared(draft.turns, trunk.draft.turns)
        accepted = Accepted(
            draft=draft,
            attempts=self.record.drafts,
            asked=context.asked,
            answered=dict(self.record.session.answered_by),
            by_calls=self.settings.player_form == "tools" and Role.PLAYER in context.models and not self.record.in_text,
            branch=None if of == 1 else Branch(number=number, of=of, shared_turns=shared),
        )
        self.accepted.append(accepted)
        return accepted


def fork(turns: tuple[DraftTurn, ...], *, seed: int, number: int, at_mistakes: bool = False) -> Turns:
    """Return the prefix of an accepted draft that its branches share.

    The prefix ends after an accepted exchange in the middle third, or with `at_mistakes` after a mistake of the player
    if there is one. The episode's seed and the play's number determine the choice. Without a candidate, the prefix ends
    after the accepted exchange nearest to the middle that leaves turns to play, or is empty.
    """
    ends = [at + 1 for at, turn in enumerate(turns[:-1]) if _went_well(turn)]
    among = [at + 2 for at in flagged_turns(turns) if _by_player(turns[at])] if at_mistakes else []
    among = among or [end for end in ends if len(turns) <= 3 * end <= 2 * len(turns)]
    if not among:
        among = sorted(ends, key=lambda end: abs(2 * end - len(turns)))[:1]
    if not among:
        return ()
    draw = int.from_bytes(blake2b(f"{seed}/fork/{number}".encode(), digest_size=8).digest())
    end = among[draw % len(among)]
    return tuple(turn for turn in turns[:end] if isinstance(turn, PlayerTurn | DungeonMasterTurn))


def why_none(record: EpisodeRecord, stage: Literal["script", "draft"]) -> str:
    """Return the reason why no script or draft was accepted: the first rejecting violation of the last refused one."""
    tried = record.scripts if stage == "script" else record.drafts
    last = record.refused[-1] if record.refused else None
    if last is None or last.stage != stage:
        return f"the play gave no {stage}, and left none that was refused"
    found = next((f"{violation.rule}: {violation.message}" for violation in last.violations if rejects(violation)), "")
    if not tried:
        return f"the {stage} that was there is not accepted now: {found}"
    return f"no {stage} was accepted in {tried} attempt{'' if tried == 1 else 's'}; the last: {found}"


_THE_SAME = Violation(
    rule="Distinct",
    turn=0,
    code="played_before",
    message=(
        "Turn by turn the same as another trajectory of its episode. Give the models a temperature above 0, or several models "
        "to the role that plays"
    ),
    keeps_prefix=False,
)


def _went_well(turn: DraftTurn) -> bool:
    return isinstance(turn, DungeonMasterTurn) and not turn.flagged and not turn.transient


def _by_player(turn: DraftTurn) -> bool:
    return isinstance(turn, PlayerTurn) and turn.by is None


def _shared(turns: tuple[DraftTurn, ...], others: tuple[DraftTurn, ...]) -> int:
    """Return the length of the common prefix of two plays, in turns."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(turns, others, strict=False)))
