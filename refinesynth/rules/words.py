"""Whether an observation agrees with the ruling: no name that is not visible, no success or failure that did not
happen.

What it cannot find: a wrong statement about visible things, and a contradiction in other words than the lexicon's. It
is there to keep a DungeonMaster from contradicting the world, not to prove it right.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import listed, quoted
from refinesynth.rules.ending import SUCCESS
from refinesynth.rules.lexicon import (
    is_english,
    normalized,
    sentences,
    tells_failure,
    tells_goal,
    tells_hindrance,
    tells_no_goal,
    tells_success,
    verbs_of,
)
from refinesynth.rules.names import MAX_TEXT, names_of
from refinesynth.rules.replaying import Answered, world_played
from refinesynth.rules.rule import FIELDS, BaseRule, Severity, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn
from refinesynth.world import Ruling, World


class _Found(NamedTuple):
    """What is wrong with an observation."""

    sentence: str
    """Addressed to the observation's writer."""
    by_lexicon: bool = True
    """Whether the English tables of phrases found it; they do not apply to text in another language."""


def judge_words(
    world: World, ruling: Ruling, before: Iterable[str], observation: str, *, action: str, transient: bool = False
) -> list[str]:
    """What is wrong with an observation as the words for a ruling, each a sentence to its writer; empty if it is right.

    `before` are the names that were visible before the action, `action` is the player's text, and `transient` says that
    it failed for a moment though the ruling accepts it. The ruling's own text is always right, and so is every sentence
    of it, as far as the first `MAX_TEXT` go; of the observation no more is read either. Where the script is not in
    English, what is announced is not judged: only names are, and the words that the program itself adds. Never raises.
    """
    found = _judge(world, ruling, before, observation, action=action, transient=transient)
    return [one.sentence for one in found if _refuses(world, one)]


def _refuses(world: World, found: _Found) -> bool:
    return not found.by_lexicon or is_english(world.script)


def _judge(
    world: World, ruling: Ruling, before: Iterable[str], observation: str, *, action: str, transient: bool
) -> Iterator[_Found]:
    observation = observation[:MAX_TEXT]
    said = "" if transient else ruling.text
    yield from _unknown_names(world, observation, (*before, *(() if transient else ruling.visible)), (action, said))
    if SUCCESS.casefold() in normalized(observation):
        problem = f"It says {quoted(SUCCESS)}. Leave that out; the program adds it when the goal is reached."
        yield _Found(problem, by_lexicon=False)
    own = [sentence for sentence in _own_sentences(observation, said) if SUCCESS.casefold() not in sentence]
    yield from map(_Found, _wrong_goal(own, done=ruling.done and not transient))
    verbs = verbs_of(action) | verbs_of(ruling.action or "")
    if transient:
        yield from map(_Found, _not_transient(ruling, observation, own, verbs))
    elif ruling.kind is None:
        yield from map(_Found, _wrong_failure(own, verbs))
    else:
        yield from map(_Found, _wrong_success(own, verbs))


def _judge_opening(world: World, visible: Iterable[str], observation: str) -> Iterator[_Found]:
    """The same of an observation before the first action."""
    observation = observation[:MAX_TEXT]
    yield from _unknown_names(world, observation, visible, ())
    yield from map(_Found, _wrong_goal(sentences(observation), done=False))


@dataclass(frozen=True, config=FIELDS)
class WordsAgree(BaseRule, built_in=True):
    """Observations of a grounded draft agree with the rulings that they are the words for; else code `words_disagree`.

    None names what the player can neither see before the action nor after it, and that stands neither in the action, in
    the ruling, in the introduction nor in the goal. None reports a success where there is a mistake or a transient
    failure, a failure where the action was carried out, or a goal that is not reached; a transient failure is
    announced. See `judge_words`. Where the script is not in English, what is wrong by our English tables of phrases is
    a warning. A script without a rulebook that runs is the responsibility of `Replays`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        played = world_played(draft)
        if played is None:
            return
        opening = draft.turns[0] if draft.turns else None
        if isinstance(opening, DungeonMasterTurn):
            yield from self._found(played.world, 0, _judge_opening(played.world, played.visible, opening.observation))
        before = played.visible
        for answered in played.answered:
            yield from self._found(played.world, answered.at + 1, _judged(played.world, before, answered))
            before = answered.visible

    def _found(self, world: World, turn: int, problems: Iterable[_Found]) -> Iterator[Violation]:
        for problem in problems:
            message = f"The observation of turn {turn + 1} is wrong. {problem.sentence}"
            violation = self.violation(turn, "words_disagree", message)
            yield violation if _refuses(world, problem) else violation.model_copy(update={"severity": Severity.WARN})


def _judged(world: World, before: tuple[str, ...], answered: Answered) -> Iterator[_Found]:
    turn = answered.answer
    said = turn.observation.rstrip().removesuffix(SUCCESS).rstrip() if answered.done else turn.observation
    return _judge(world, answered.ruling, before, said, action=answered.action, transient=turn.transient)


def _unknown_names(world: World, observation: str, visible: Iterable[str], stated: Iterable[str]) -> Iterator[_Found]:
    names = names_of(world)
    mentioned = names.mentioned(observation)
    if not mentioned:
        return
    left = set(mentioned)
    for text in (*stated, *_player_briefing(world), *visible):
        left.difference_update(names.known_from(text))
        if not left:
            return
    unknown = [name for words, name in mentioned.items() if words in left]
    problem = (
        f"It names {listed(unknown, most=300)}, which the player can neither see nor has named. Name only what is visible, what "
        "stands in the action, and what the ruling says."
    )
    yield _Found(problem, by_lexicon=False)


def _player_briefing(world: World) -> Iterator[str]:
    script = world.script
    yield script.introduction
    yield script.goal
    yield from (action.name for action in script.actions)


def _own_sentences(observation: str, said: str) -> list[str]:
    """Sentences that the ruling does not say by the same words; one may have been cut off."""
    # The engine writes no more than this of the phrase where a rulebook says it.
    known = " ".join(sentences(said[:MAX_TEXT]))
    known = f"{known} {known.replace(SUCCESS.casefold(), 'success')}"
    observed = dict.fromkeys(sentences(observation))
    return [sentence for sentence in observed if sentence.removesuffix("...").rstrip() not in known]


def _wrong_goal(own: Iterable[str], *, done: bool) -> Iterator[str]:
    if done:
        if wrong := next(filter(tells_no_goal, own), None):
            yield f"It says {quoted(wrong)}, but the goal is reached. Leave the goal out."
    elif wrong := next(filter(tells_goal, own), None):
        yield f"It says {quoted(wrong)}, but the goal is not reached yet. Leave the goal out."


def _wrong_failure(own: Iterable[str], verbs: Iterable[str]) -> Iterator[str]:
    if wrong := next((sentence for sentence in own if tells_failure(sentence, verbs)), None):
        yield f"It says {quoted(wrong)}, but the action was carried out. Say what it did."


def _wrong_success(own: Iterable[str], verbs: Iterable[str]) -> Iterator[str]:
    if wrong := next((sentence for sentence in own if tells_success(sentence, verbs)), None):
        yield f"It says {quoted(wrong)}, but the action was not carried out and nothing has changed. Say why it did not work."


def _not_transient(ruling: Ruling, observation: str, own: Iterable[str], verbs: Iterable[str]) -> Iterator[str]:
    wrong = next((sentence for sentence in own if tells_success(sentence, verbs)), None)
    outcome = normalized(ruling.text)
    if wrong is None and outcome and outcome in normalized(observation):
        wrong = outcome
    if wrong is not None:
        yield f"It says {quoted(wrong)}, but the action failed for a moment and nothing has changed. Say that it did not work this time."
    elif not tells_hindrance(observation):
        yield "It does not say that the action failed. Say that it did not work this time, and that this is passing."
