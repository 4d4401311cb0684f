"""Answers to mistakes: the one definition of a refinement, for rules, counts and readers of a
trajectory.

Where the world is imagined, any different action that the DungeonMaster accepts counts: no program can say more. Where
it is executed (the script has a rulebook that runs), an action that is accepted answers a mistake only if one of these
holds:

- it is the refused action itself, which now succeeds;
- since it, the requirement that refused the action holds, and did not before it;
- the refused text was no action of the world, and it is what was meant: an action whose form the text has with another
  value, one that begins with the same word, or one whose value stands in the text;
- it is the first action that is accepted after the mistake, and its thought, or that of a try between them which failed,
  gives the plan up for a reason: it takes up what the refusal said, or says that something is not needed and what. See
  `reasons.gives_reason`.

An action that only prepares an answer is none: a player without the key that walks to the key's shelf answers by taking
it. But the thought that says so makes the first step an answer. Other actions that are accepted are unrelated.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import pydantic.dataclasses
from pydantic import Field

from refinesynth.actions.matching import match_pattern, meaning
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.exchanges import Exchange, exchanges, is_complete
from refinesynth.rules.names import Names, names_of, words_of
from refinesynth.rules.replaying import Answered, world_played
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import (
    Draft,
    DungeonMasterTurn,
    MistakeKind,
    PlayerTurn,
    Refinements,
    Script,
    Trajectory,
    flagged_turns,
)
from refinesynth.world import World, mentions

_STEM = 5
"""Letters by which words are compared, so that `unlock` and `unlocked` are one: cutting words off is a fair stemmer in
most languages."""

_LONG = 4
"""Shortest word that says something by itself, in letters; shorter ones do where they are part of a name."""

_SHARED = 2
"""Words that a thought has in common with the refusal that it takes up; all of them where the refusal has fewer."""

_FUNCTION_WORDS = (
    "about after again anything away before cannot can't could does doesn't done don't down else even every everything first from have "
    "here into isn't it's just like make more must need needs next nothing once only over same should some something still take that "
    "their them then there these they thing things this those through until very want what when where which while will with won't work "
    "works would your happens happened possible refused worked"
)
_COMMON = frozenset(word[:_STEM] for word in _FUNCTION_WORDS.split())

_DISPENSED = re.compile(
    r"\b(?:instead|rather|no need|not (?:be )?(?:needed|necessary|required)|unnecessary|needless|superfluous|without"
    r"|(?:do not|don['\u2019]t|need not|needn['\u2019]t|no longer|not) (?:have to|need|want)|give up|giving up|forget about|leave it|leave that"
    r"|(?:an)?other (?:way|one|plan)|something else|somewhere else)\b",
    re.IGNORECASE,
)
"""How it is said that something is not needed, or that something else will do."""


def gives_reason(thought: str, *, refused: str, refusal: str, names: Names) -> bool:
    """Return whether a thought says why the `refused` action is given up, as far as words show. Time linear in the texts.

    Either it takes up the refusal: it has two words in common with it, one of which the action had not, if there is
    such a one. Or it says by an English phrase that something is not needed or that something else will do (`instead`,
    `no need`, `without`, ...), and names a word of the action. Words are compared by their first five letters; those
    count that have four, or are part of a name that actions can be given, and that are none of the commonest English
    ones.
    """
    said, asked, answered = (_meaningful(text, names) for text in (thought, refused, refusal))
    shared = said & answered
    new = answered - asked
    if answered and len(shared) >= min(_SHARED, len(answered)) and (not new or shared & new):
        return True
    return bool(said & asked) and _DISPENSED.search(thought) is not None


def is_common(word: str) -> bool:
    """Return whether a word, in lower case, is one of the commonest English ones, by its first five letters."""
    return word[:_STEM] in _COMMON


def _meaningful(text: str, names: Names) -> frozenset[str]:
    """The beginnings of the words of a text that say something."""
    named = {word for name in names.known_from(text) for word in name.split()}
    words = (word for word in words_of(text) if len(word) >= _LONG or word in named)
    return frozenset(word[:_STEM] for word in words) - _COMMON


WITHIN = 3
"""How many player turns after a mistake may pass until its answer, that one included; the default of
`RealRefinement`."""


class Repair(NamedTuple):
    """A mistake, and what came after it."""

    mistake: Exchange
    answer: int | None
    """Index of the player turn that answers it; None if none does."""
    unrelated: int | None
    """Index of the first player turn that was accepted and differs, where none answers."""
    last: int
    """Index of the last player turn that could have been the answer; the number of turns if there is none."""
    waits: bool
    """Whether an answer can still come: the draft is not finished, and the window is not over."""
    again: bool = False
    """Whether it is a second try: the turn before it was a mistake too."""
    late: bool = False
    """Whether something else was accepted before the answer; only where the world is executed."""
    given_up: bool = False
    """Whether nothing answers it but that the plan is given up for a reason; only where the world is executed."""


def refinements(trajectory: Trajectory) -> Refinements:
    """Return what became of its mistakes: as it was counted when it was accepted, else counted now."""
    known = trajectory.provenance.refinements
    return count_refinements(repairs(trajectory.draft())) if known is None else known


def count_refinements(found: Sequence[Repair]) -> Refinements:
    """Return how many mistakes are answered, and how many only unrelated actions follow."""
    return Refinements(
        answered=sum(repair.answer is not None for repair in found),
        unrelated=sum(repair.unrelated is not None for repair in found),
        again=sum(repair.again for repair in found),
        late=sum(repair.late for repair in found),
        given_up=sum(repair.given_up for repair in found),
    )


_Answers = Callable[[Exchange, Exchange, str], Literal["done", "given up"] | None]
"""How an accepted action answers a mistake, if it does. If it is the first that was accepted after it: what was thought
since, in tries that failed too."""


def repairs(draft: Draft, within: int = WITHIN) -> tuple[Repair, ...]:
    """Return what became of each mistake of a draft, in order. Never raises; an action that failed for a moment is passed
    over.
    """
    steps = [step for step in exchanges(draft.turns) if not step.transient]
    if not any(step.flagged for step in steps):
        return ()
    return tuple(_repairs(draft, steps, within, _judge_of(draft)))


def _repairs(draft: Draft, steps: Sequence[Exchange], within: int, answers: _Answers) -> Iterator[Repair]:
    complete = is_complete(draft)
    for number, mistake in enumerate(steps):
        if not mistake.flagged:
            continue
        window = steps[number + 1 : number + 1 + within]
        accepted = [step for step in window if step.accepted]
        since = draft.turns[mistake.at + 1 : accepted[0].at + 1] if accepted else ()
        thought = " ".join(turn.thought for turn in since if isinstance(turn, PlayerTurn))
        found = [
            (step.at, how)
            for step in accepted
            if (how := answers(mistake, step, thought if step is accepted[0] else ""))
        ]
        others = [step.at for step in accepted if _differs(draft.script, mistake, step)]
        yield Repair(
            mistake=mistake,
            answer=found[0][0] if found else None,
            unrelated=others[0] if others and not found else None,
            last=window[-1].at if window else len(draft.turns),
            waits=not complete and (len(window) < within or window[-1].after is None),
            again=number > 0 and steps[number - 1].flagged,
            late=bool(found) and found[0][0] != accepted[0].at,
            given_up=bool(found) and all(how == "given up" for _, how in found),
        )


def _judge_of(draft: Draft) -> _Answers:
    def imagined(mistake: Exchange, step: Exchange, _: str) -> Literal["done"] | None:
        return "done" if _differs(draft.script, mistake, step) else None

    played = world_played(draft) if draft.script.grounded else None
    if played is None:
        return imagined
    known = {step.at: step for step in played.answered}
    names = names_of(played.world)

    def answers(mistake: Exchange, step: Exchange, thought: str) -> Literal["done", "given up"] | None:
        refused, now = known.get(mistake.at), known.get(step.at)
        if refused is None or now is None or refused.ruling.kind is None:
            # What the rulebook contradicts, or what cannot be replayed, is found by `Replays`.
            return imagined(mistake, step, thought)
        if _executed(played.world, refused, now):
            return "done"
        return "given up" if _gives_up(refused, thought, names) else None

    return answers


def _differs(script: Script, mistake: Exchange, step: Exchange) -> bool:
    return meaning(script, step.player.action) != meaning(script, mistake.player.action)


def _executed(world: World, refused: Answered, step: Answered) -> bool:
    """Return whether the world says that an action answers one that it refused."""
    wanted, done = refused.ruling, step.ruling
    if wanted.action is None:
        return refused.at in step.meets or _is_meant(world, refused.action, step)
    return refused.at in step.meets or (wanted.action, wanted.values) == (done.action, done.values)


def _is_meant(world: World, text: str, step: Answered) -> bool:
    """Return whether an action is what a text was meant to be that is none."""
    ruling = step.ruling
    taken = next((taken.spec for taken in world.actions if taken.spec.name == ruling.action), None)
    if taken is None:
        return False
    begins, began = folded(step.action).partition(" ")[0], folded(text).partition(" ")[0]
    return (
        begins == began
        or match_pattern(taken, text) is not None
        or any(mentions(text, value) for value in ruling.values.values())
    )


def _gives_up(refused: Answered, thought: str, names: Names) -> bool:
    # The rulebook's hint may be short and plain, and a DungeonMaster's words for it long: to take up either is enough.
    return any(
        gives_reason(thought, refused=refused.action, refusal=refusal, names=names)
        for refusal in (refused.ruling.text, refused.answer.observation)
    )


@dataclass(frozen=True)
class Mistake:
    """The DungeonMaster flagged this player turn."""

    kind: MistakeKind


@dataclass(frozen=True)
class Refinement:
    """This player turn answers mistakes, see `repairs`."""

    of: tuple[int, ...]
    """Indices of the mistakes' turns."""


@dataclass(frozen=True)
class Unrelated:
    """This player turn was the first that was accepted after mistakes that nothing answers, and has nothing to do with
    them.
    """

    after: tuple[int, ...]
    """Indices of the mistakes' turns."""


Mark = Mistake | Refinement | Unrelated


def marks(draft: Draft) -> dict[int, Mark]:
    """Turn index to what the turn is; turns that are none of these are left out."""
    found: dict[int, Mark] = {}
    answers: dict[int, tuple[int, ...]] = {}
    others: dict[int, tuple[int, ...]] = {}
    for at in flagged_turns(draft.turns):
        answer = draft.turns[at + 1]
        if isinstance(answer, DungeonMasterTurn) and answer.mistake_kind is not None:
            found[at] = Mistake(answer.mistake_kind)
    for repair in repairs(draft):
        if repair.answer is not None:
            answers[repair.answer] = (*answers.get(repair.answer, ()), repair.mistake.at)
        elif repair.unrelated is not None:
            others[repair.unrelated] = (*others.get(repair.unrelated, ()), repair.mistake.at)
    found.update((at, Unrelated(after)) for at, after in others.items())
    found.update((at, Refinement(of)) for at, of in answers.items())
    return found


@pydantic.dataclasses.dataclass(frozen=True, config=FIELDS)
class EnoughMistakes(BaseRule, built_in=True):
    """At least `minimum` DM turns flag an error (Algorithm 1); else code `too_few_errors`.

    The one failure of Algorithm 1 that keeps no prefix: generation starts over from nothing. Reported at the last turn,
    after all other checks. Unfinished drafts pass.
    """

    minimum: Annotated[int, Field(ge=0)] = 2
    """The paper's method says two; its printed pseudo-code compares with one, a slip."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if not is_complete(draft):
            return
        errors = sum(1 for turn in draft.turns if isinstance(turn, DungeonMasterTurn) and turn.flagged)
        if errors < self.minimum:
            message = (
                f"The trajectory has {errors} turns with an error flag and needs at least {self.minimum}. Start over: let "
                "the player make that many plausible mistakes, each noticed from the DM's answer and then corrected."
            )
            yield self.violation(max(len(draft.turns) - 1, 0), "too_few_errors", message, keeps_prefix=False)


@pydantic.dataclasses.dataclass(frozen=True, config=FIELDS)
class RealRefinement(BaseRule, built_in=True):
    """Each mistake is answered within a few player turns by an action that is accepted; else `not_refined`.

    Where the world is imagined, any different action counts. Where it is executed, it has to answer the mistake: what
    was refused succeeds, what it lacked is there, what was meant is done, or the plan is given up for a reason;
    `repairs` says what exactly is looked at. Blamed is the last player turn that could have been the answer. Actions
    are compared by what they do, see `meaning`. While an unfinished draft can still bring the answer in time, it
    passes. An action that failed for a moment answers nothing yet and is not counted: it may be tried again.
    """

    within: Annotated[int, Field(ge=1)] = WITHIN
    """How many player turns after the mistake may pass until the answer, that one included."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for found in repairs(draft, self.within):
            if found.answer is None and not found.waits:
                yield self.violation(found.last, "not_refined", self._message(found))

    def _message(self, found: Repair) -> str:
        wrong = quoted(found.mistake.player.action)
        if found.unrelated is not None:
            return (
                f"{wrong} was refused, and nothing that was done since has to do with it. Within the next {self.within} actions, see to what "
                "it lacked, or say in the next thought what stood in its way or why it is not needed, and do something else."
            )
        return (
            f"The mistake in turn {found.mistake.at + 1}, {wrong}, is not repaired: one of the next "
            f"{self.within} player turns must be a different action that the DM accepts."
        )


@pydantic.dataclasses.dataclass(frozen=True, config=FIELDS)
class NoRepeatedMistake(BaseRule, built_in=True):
    """No action is taken again, unchanged, after it was called wrong; else code `mistake_repeated`.

    The exception is an action that the DM now accepts, after it accepted another one in between: what failed in the
    hall may work in the kitchen. While it is not answered, only the latter is asked. Compared by what they do, see
    `meaning`. What failed for a moment was not called wrong and may be tried again; it changed nothing either.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        wrong: dict[tuple[str, ...], int] = {}
        unchanged = set[tuple[str, ...]]()  # Those of `wrong` since which no other action was accepted.
        for step in exchanges(draft.turns):
            action = meaning(draft.script, step.player.action)
            if action in wrong and (step.flagged or action in unchanged):
                since = "and calls wrong again" if action not in unchanged else "though nothing has changed since"
                message = (
                    f"Turn {step.at + 1} repeats {quoted(step.player.action)}, which the DM called wrong in turn "
                    f"{wrong[action] + 2}, {since}. Try something different."
                )
                yield self.violation(step.at, "mistake_repeated", message)
            if step.flagged:
                wrong.setdefault(action, step.at)
                unchanged.add(action)
            elif step.accepted and not step.transient:
                unchanged &= {action}
