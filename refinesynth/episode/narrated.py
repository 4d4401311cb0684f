"""Narrated play: the loop around Algorithm 1 of the paper.

One answer contains the whole trajectory. After a violation, the next answer continues from the verified prefix with
feedback. A violation without a verified prefix, such as too few mistakes, restarts the trajectory.
"""

from refinesynth.backends.backend import Role
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns, turns_to_keep
from refinesynth.roles import Narrator
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, MalformedTurn, Script


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
            draft = await narrator.tell(script, verified, violations=violations)
            verdict = await verifier.verify(draft)
            if verdict.accepted:
                return draft
            record.refuse_draft(draft, verdict.violations)
            prefix = draft.turns[: max(len(start), turns_to_keep(draft, verdict))]
            # A prefix must not contain a malformed turn even if the rules accept it.
            end = next((index for index, turn in enumerate(prefix) if isinstance(turn, MalformedTurn)), len(prefix))
            verified = tuple(turn for turn in prefix[:end] if not isinstance(turn, MalformedTurn))
            violations = tuple(filter(rejects, verdict.violations))
        return None


NARRATED = NarratedPlay()


def narrator_of(context: EpisodeContext) -> Narrator:
    """Return the narrator; its minimum of mistakes is at least that of the rules."""
    required = context.settings.prompts.required.get("EnoughMistakes", {}).get("minimum", 0)
    episode = context.settings.place(context.session.index) + context.number
    requested = context.settings.mistakes.count(episode=episode, seed=context.session.seed)
    return context.actor(Narrator, Role.NARRATOR, minimum=max(requested, required), seed=context.session.seed)
