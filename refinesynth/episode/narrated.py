"""Narrated play: the loop around Algorithm 1 of the paper.

One answer contains the whole trajectory. After a violation, the next answer continues from the verified prefix with
feedback. A violation without a verified prefix, such as too few mistakes, restarts the trajectory.
"""

from itertools import takewhile

from refinesynth.backends.role import Role
from refinesynth.client.tracing import ACCEPTED, span
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns
from refinesynth.roles import Narrator
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, DraftTurn, MalformedTurn, Script


class NarratedPlay(Play):
    """Play in which one completion writes both voices, as in the paper."""

    name = "narrated"

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        del settings
        return (Role.NARRATOR,)

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        narrator, verifier, record = narrator_of(context), context.verifier, context.record
        verified, violations = start, tuple[Violation, ...]()
        while record.drafts < context.settings.attempts.drafts:
            record.begin_draft(after=len(verified))
            with span("attempt", stage="draft", number=record.drafts) as attempt:
                draft = await narrator.tell(script, verified, violations=violations)
                verdict = await verifier.verify(draft)
                attempt.set_attribute(ACCEPTED, verdict.accepted)
            if verdict.accepted:
                return draft
            record.refuse_draft(draft, verdict.violations)
            verified = _well_formed(draft.turns[: max(len(start), verdict.verified_turns)])
            violations = tuple(filter(rejects, verdict.violations))
        return None


NARRATED = NarratedPlay()


def narrator_of(context: EpisodeContext) -> Narrator:
    """Return the narrator; its minimum of mistakes is at least that of the rules."""
    wanted = context.settings.prompts.required.get("EnoughMistakes", {}).get("minimum", 0)
    episode = context.settings.place(context.session.index) + context.number
    drawn = context.settings.mistakes.count(episode=episode, seed=context.session.seed)
    minimum = max(drawn, wanted)
    return context.actor(Narrator, Role.NARRATOR, minimum=minimum, seed=context.session.seed)


def _well_formed(turns: tuple[DraftTurn, ...]) -> Turns:
    """Return the turns before the first malformed one, which a prefix must not contain even if the rules accept it."""
    kept = takewhile(lambda turn: not isinstance(turn, MalformedTurn), turns)
    return tuple(turn for turn in kept if not isinstance(turn, MalformedTurn))
