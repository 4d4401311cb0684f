"""Curation of accepted trajectories: near-duplicate scripts and overlaps with evaluation sets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from refinesynth.diversity import CONTAMINATED, NEAR_DUPLICATE, Contamination, NearDuplicate, Novelty, Overlap
from refinesynth.outcome import Cost, EpisodeOutcome, Refused
from refinesynth.rules import Violation
from refinesynth.settings import Curation
from refinesynth.text.formatting import scrub
from refinesynth.trajectory import Script, Trajectory

_MAX_QUOTED = 3
"""Maximum number of overlaps that a violation quotes."""


@dataclass(kw_only=True)
class Curator:
    """Curator of outcomes; its decisions depend only on the commits and their order.

    Later scripts are not compared with refused ones. A script that an episode plays several times counts once.
    """

    novelty: Novelty | None = None
    """Index of admitted scripts; None admits near-duplicates."""
    contamination: Contamination | None = None
    """Index of evaluation sets; None ignores them."""

    @classmethod
    def of(cls, curation: Curation) -> "Curator":
        """Make a curator from settings; reads the evaluation sets. Raises InputError: a set cannot be read."""
        near_duplicates, sets = curation.near_duplicates, curation.contamination
        return cls(
            novelty=None if near_duplicates is None else Novelty(near_duplicates),
            contamination=Contamination(sets, words=curation.words) if sets else None,
        )

    def learn(self, trajectories: Iterable[Trajectory]) -> None:
        """Add committed trajectories of earlier processes, in their order; takes some milliseconds per script."""
        if self.novelty is not None:
            self.novelty.learn(_scripts(trajectories))

    def curate(self, outcome: EpisodeOutcome) -> EpisodeOutcome:
        """Return the outcome with refused trajectories moved to its refused drafts; `outcome` itself without refusals."""
        admitted: dict[str, NearDuplicate | None] = {}
        """Digest of a script to the earlier script that it resembles; several trajectories may share a script."""
        refusals: dict[str, Violation] = {}
        for trajectory in outcome.trajectories:
            refusal = self._contamination_of(trajectory)
            if refusal is None and self.novelty is not None:
                script = trajectory.script
                if script.digest not in admitted:
                    admitted[script.digest] = self.novelty.admit(script, trajectory.id)
                if (duplicate := admitted[script.digest]) is not None:
                    refusal = _violation(NEAR_DUPLICATE, "near_duplicate", _describe_duplicate(duplicate))
            if refusal is not None:
                refusals[trajectory.id] = refusal
        if not refusals:
            return outcome
        accepted = tuple(trajectory for trajectory in outcome.trajectories if trajectory.id not in refusals)
        wasted = sum((Cost(usage=draft.usage, cost_usd=draft.cost_usd) for draft in outcome.refused), Cost())
        useful = Cost(usage=outcome.usage, cost_usd=outcome.cost_usd) - wasted
        refused = tuple(
            Refused(
                episode=outcome.id,
                persona=trajectory.persona,
                stage="draft",
                attempt=trajectory.provenance.attempts,
                draft=trajectory.draft(),
                violations=(refusals[trajectory.id],),
                usage=spent.usage,
                cost_usd=spent.cost_usd,
            )
            for trajectory, spent in zip(outcome.trajectories, useful.divided(len(outcome.trajectories)), strict=True)
            if trajectory.id in refusals
        )
        return outcome.model_copy(
            update={
                "trajectories": accepted,
                "refused": (*outcome.refused, *refused),
                "reason": None if accepted else refused[0].violations[0].message,
            }
        )

    def _contamination_of(self, trajectory: Trajectory) -> Violation | None:
        overlaps = () if self.contamination is None else self.contamination.overlaps(trajectory)
        return _violation(CONTAMINATED, "contaminated", _describe_overlaps(overlaps)) if overlaps else None


def _scripts(trajectories: Iterable[Trajectory]) -> Iterator[tuple[str, Script]]:
    """Yield each script with the id of its first trajectory; trajectories of one script are consecutive."""
    previous: Script | None = None
    for trajectory in trajectories:
        if trajectory.script != previous:
            previous = trajectory.script
            yield trajectory.id, previous


def _violation(rule: str, code: str, message: str) -> Violation:
    return Violation(rule=rule, turn=0, code=code, message=scrub(message), keeps_prefix=False)


def _describe_duplicate(duplicate: NearDuplicate) -> str:
    return (
        f"The script resembles that of {duplicate.of} by {duplicate.similarity:.2f}: the world by {duplicate.world:.2f}, "
        f"the actions by {duplicate.actions:.2f}, the goal by {duplicate.goal:.2f}. Write one that differs in more than names."
    )


def _describe_overlaps(overlaps: Sequence[Overlap]) -> str:
    overlap_texts = "; ".join(f"{item.where} {item.text!r} as in {item.source}" for item in overlaps[:_MAX_QUOTED])
    remainder = f"; and {len(overlaps) - _MAX_QUOTED} more" if len(overlaps) > _MAX_QUOTED else ""
    count = sum(item.words for item in overlaps)
    return f"{count} words are those of an evaluation set: {overlap_texts}{remainder}."
