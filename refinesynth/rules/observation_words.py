"""Agreement of an observation with the ruling: no invisible name, and no reported success or failure that did not
occur.

It does not find a wrong statement about visible things, or a contradiction in words outside the lexicon. It keeps a
DungeonMaster from contradicting the world; it does not prove an observation right.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from refinesynth.rules.actions import SUCCESS
from refinesynth.rules.name_search import MAX_TEXT, names_of
from refinesynth.rules.rule import BuiltInRule, Severity, Violation
from refinesynth.rules.world_replay import ReplayedDraft, replay_draft
from refinesynth.text.formatting import listed, quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn, Script
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world import Ruling, World, mentions
from refinesynth.world.compiled_action import shown_part

_VERB_GROUPS = (
    "take grab pick lift collect fetch gather pocket acquire obtain retrieve snatch",
    "put place drop lay leave store deposit insert set stack return file",
    "go walk move head enter travel drive roll climb cross visit navigate arrive",
    "open unlatch unlock unseal",
    "close shut lock seal",
    "clean wash rinse scrub wipe",
    "heat warm cook reheat boil bake",
    "cool chill freeze",
    "cut slice chop carve",
    "write edit save label mark sign rename change",
    "delete remove erase",
    "give hand deliver offer pass",
    "repair fix mend restore",
    "attach connect plug fasten mount install",
    "activate start enable ignite launch",
)
"""Groups of verbs with the same effect: a report of one implies the others in its group."""

_PAST_FORMS = {
    "take": "took|taken", "go": "went|gone", "put": "put", "set": "set", "lay": "laid", "leave": "left", "drive": "drove|driven",
    "shut": "shut", "cut": "cut", "write": "wrote|written", "give": "gave|given", "freeze": "froze|frozen", "read": "read",
    "bring": "brought", "find": "found", "send": "sent",
}  # fmt: skip

_GROUP_OF_VERB = {verb: kind.split() for kind in _VERB_GROUPS for verb in kind.split()}

_IGNORED_WORDS = frozenset((
    "from", "to", "in", "on", "at", "with", "into", "of", "the", "a", "an", "and", "for", "my", "your", "all", "look",
    "around", "please", "l", "ls",
))  # fmt: skip
"""First words of actions that say nothing about their effect."""


def _any_of(*phrases: str) -> re.Pattern[str]:
    """Return a pattern for any of these phrases, as whole words; a slash separates alternatives."""
    patterns = (" ".join(f"(?:{word.replace('/', '|')})" for word in phrase.split()) for phrase in phrases)
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


_OPEN_ENDED = _any_of(
    "not/no/never/none/nothing/nobody/nowhere/unable/impossible/hardly/almost/nearly/instead/already/still",
    "if/unless/until/before/when/once/would/could/should/must/might/may/can/will/need/needs",
    "try/tries/tried/trying/attempt/attempts/attempted/want/wants/wanted/fail/fails/failed/failing",
    "remain/remains/stay/stays/refuse/refuses",
    "have/has/had/about to",
)
"""Words of a clause that does not report success."""

_SUCCESS = _any_of(
    "success/successful/successfully/succeed/succeeds/succeeded",
    "it/that/this works/worked",
    "you manage/managed to",
    "swings/slides/clicks/creaks/pops open/shut",
    r"you pull/push/slide/force/tug the \w+ open/shut",
)
_STATE_REPORT = re.compile(
    r"(?<!\bright )(?<!\bfor )(?<!\bby )(?:\bnow (?:is|are|has|have|rests?|lies?|sits?|stands?|holds?)\b|(?<!\bjust )\bnow[.!]*$)"
    r"|\b(?:is|are|you|you have) now\b(?! and then)|^(?:done|ok|okay|all right|very well|well done|completed?)[.!]*$"
)
"""Words that report a present state or a completed action."""

_FAILURE = _any_of(
    "nothing happens/changes",
    "nothing has changed",
    "no/without/without effect",
    "without any effect",
    "fail/fails/failed/failure/unsuccessful/impossible/invalid/denied/interrupted",
    "in vain",
    "to no avail",
    "try again",
    "this time",
    "timed/times out",
    "come/comes to nothing",
    "no such/response",
    "not a valid",
    "not allowed/permitted/possible/available/recognized/understood/accepted/found",
    "do/does/did/will/would not work/respond/budge/move/open/close/start",
)
_NO_FAILURE = _any_of("no/without/zero errors/failures/problems/error/failure/problem", "never fail/fails")
_HINDRANCE = _any_of(
    "not/no/nothing/unable/again/later/almost/nearly/busy/unavailable",
    "attempt/attempts/try/tries/wait/waits/moment/moments/grip",
    "slip/slips/slipped/stay/stays/remain/remains/stuck/stalls/hangs/lags/drops/refuses",
)
"""Words of a text that reports a failure."""

_AIM = "task/goal/mission/quest/objective/job"
_GOAL = _any_of(
    f"{_AIM} reached/achieved/complete/completed/accomplished/fulfilled/met/done/finished",
    f"{_AIM} is/are/was/been reached/achieved/complete/completed/accomplished/fulfilled/met/done/finished",
    f"you/have/'ve reached/achieved/completed/accomplished/fulfilled/finished/met the/your {_AIM}",
    "congratulations",
)
_GOAL_MISSED = _any_of(f"{_AIM} is/was/been/remains not/unreached/unfinished/incomplete")

_SENTENCES = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSES = re.compile(r"[,:;\u2013\u2014]\s+|\s+(?:but|yet|although|though|while|because|since|as)\s+")
_QUOTED = re.compile(r"\"[^\"\n]{0,2000}\"|\u201c[^\u201c\u201d\n]{0,2000}\u201d|«[^«»\n]{0,2000}»|`[^`\n]{0,2000}`")

_COMMON = frozenset(["the", "you", "your", "and", "with", "from", "is", "are"])
_MIN_SHARE = 0.05
"""Minimum share of common words in an English text; English has several times as many, other languages almost none."""


@weakly_cached
def is_english(script: Script) -> bool:
    """Return whether a script is in English, judged by its share of common words; a script with few words counts as
    English.
    """
    text = " ".join((script.introduction, script.goal, *(action.description for action in script.actions)))
    words = re.findall(r"\w+", text.casefold())
    return len(words) < 1 / _MIN_SHARE or sum(word in _COMMON for word in words) >= _MIN_SHARE * len(words)


def normalized(text: str) -> str:
    """Return a text in lower case on one line, with one kind of apostrophe."""
    return " ".join(text.casefold().replace("\u2019", "'").split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in lower case, without quotations; a line break ends a sentence too."""
    return [sentence for part in _SENTENCES.split(_QUOTED.sub(" ", text)) if (sentence := normalized(part))]


def verbs_of(action: str) -> frozenset[str]:
    """Return the verbs for the effect of an action or template: its first word, and all verbs of its words' groups."""
    words = re.findall(r"[^\W\d_]+", re.sub(r"\{[^{}]*\}", " ", action.casefold()[:500]))
    verbs = [verb for word in words for verb in _GROUP_OF_VERB.get(word, ())]
    first_verb = [word for word in words[:1] if word not in _IGNORED_WORDS]
    return frozenset((*verbs, *first_verb))


def _first_matching(
    sentences: Iterable[str], *patterns: re.Pattern[str], unless: re.Pattern[str] | None = None
) -> str | None:
    """Return the first sentence with a clause that matches one of the patterns, but not `unless`; None without one."""
    for sentence in sentences:
        for clause in _clauses(sentence):
            if any(pattern.search(clause) for pattern in patterns) and not (unless and unless.search(clause)):
                return sentence
    return None


def _clauses(sentence: str) -> list[str]:
    """Return the clauses of a sentence, with `not` as a separate word."""
    expanded = sentence.replace("cannot", "can not").replace("can't", "can not").replace("won't", "will not")
    return [clause.strip() for clause in _CLAUSES.split(expanded.replace("n't", " not")) if clause.strip()]


@lru_cache(maxsize=1_024)
def _success_pattern(verbs: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for a report that one of these was done."""
    if not verbs:
        return re.compile(r"(?!)")
    now, past = "|".join(sorted(verbs)), "|".join(sorted({_past_forms(verb) for verb in verbs}))
    opening = [verb for verb in verbs if verb in {"open", "unlock", "close", "shut", "lock"}]
    third_person = rf"|\b(?:{'|'.join(opening)})s\b" if opening else ""
    return re.compile(
        rf"\byou (?:\w+ly |now |then |just )?(?:{now}|{past})\b|^(?:{past})[.!]*$|\b(?:you have|you've|has been) (?:{past})\b"
        rf"|\b(?:is|are) in your (?:hands?|bag|inventory|possession)\b{third_person}"
    )


@lru_cache(maxsize=1_024)
def _failure_pattern(verbs: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for a report that one of these, or it, could not be done."""
    verb = rf"(?:{'|'.join(('do', *sorted(verbs)))})"
    return re.compile(
        rf"\b(?:(?:can|could|may|do|did) not|unable to|not able to|not allowed to) (?:\w+ )?{verb}\b|\b(?:can|could) not be \w+"
    )


def _past_forms(verb: str) -> str:
    if verb in _PAST_FORMS:
        return _PAST_FORMS[verb]
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}(?:{verb[-1]})?ed"


class _Fault(NamedTuple):
    """Problem of an observation."""

    sentence: str
    """Message to the observation's writer."""
    by_lexicon: bool = True
    """True if it comes from the English tables of phrases, which do not apply to other languages."""

    def refuses(self, world: World) -> bool:
        """Return whether it is more than a warning."""
        return not self.by_lexicon or is_english(world.script)


def judge_words(
    world: World, ruling: Ruling, before: Iterable[str], observation: str, *, action: str, transient: bool = False
) -> list[str]:
    """Return the problems of an observation as wording of a ruling, each a message to its writer; empty for a correct
    one.

    `before` are the names visible before the action, `action` is the player's text, and `transient` marks a failure by
    chance of an action that the ruling accepts. Unless `transient`, the ruling's own text and each of its sentences are
    right, except for the success phrase, which the program adds. Only the first `MAX_TEXT` characters of ruling and
    observation are read. If the script is not in English, only names, the success phrase and omitted texts of the
    knowledge record are checked. Never raises.
    """
    faults = _wording_faults(world, ruling, before, observation, action=action, transient=transient)
    return [fault.sentence for fault in faults if fault.refuses(world)]


def _wording_faults(
    world: World, ruling: Ruling, before: Iterable[str], observation: str, *, action: str, transient: bool
) -> Iterator[_Fault]:
    observation = observation[:MAX_TEXT]
    ruling_text = "" if transient else ruling.text
    visible = before if transient else (*before, *ruling.visible)
    yield from _common_faults(world, observation, (action, ruling_text, *visible))
    added = [sentence for sentence in _own_sentences(observation, ruling_text) if SUCCESS.casefold() not in sentence]
    yield from _goal_faults(added, done=ruling.done and not transient)
    verbs = verbs_of(action) | verbs_of(ruling.action or "")
    if not transient and ruling.kind is None:
        if wrong := _first_matching(added, _FAILURE, _failure_pattern(verbs), unless=_NO_FAILURE):
            yield _Fault(f"It says {quoted(wrong)}, but the action was carried out. Say what it did.")
        shown = shown_part(ruling_text)
        for text in world.knowledge.texts if world.knowledge else ():
            if mentions(shown, text) and not mentions(observation, text):
                problem = f"It leaves out {quoted(text)}, which the player reads there. Say it word for word."
                yield _Fault(problem, by_lexicon=False)
        return
    wrong = _first_matching(added, _SUCCESS, _STATE_REPORT, _success_pattern(verbs), unless=_OPEN_ENDED)
    outcome = normalized(ruling.text)
    if transient and wrong is None and outcome and outcome in normalized(observation):
        wrong = outcome
    failed, advice = "was not carried out", "Say why it did not work."
    if transient:
        failed, advice = "failed for a moment", "Say that it did not work this time."
    if wrong is not None:
        yield _Fault(f"It says {quoted(wrong)}, but the action {failed} and nothing has changed. {advice}")
    elif transient and not _first_matching(sentences(observation), _FAILURE, _HINDRANCE):
        advice = "Say that it did not work this time, and that this is passing."
        yield _Fault(f"It does not say that the action failed. {advice}")


def _common_faults(world: World, observation: str, known_texts: Iterable[str]) -> Iterator[_Fault]:
    """Yield the unknown names and the success phrase in any observation; the player knows `known_texts`."""
    names = names_of(world)
    mentioned = names.mentioned(observation)
    unexplained, script = set(mentioned), world.script
    for text in (*known_texts, script.introduction, script.goal, *(action.name for action in script.actions)):
        if not unexplained:
            break
        unexplained.difference_update(names.mentions_in(text))
    if unexplained:
        unknown = listed((name for words, name in mentioned.items() if words in unexplained), limit=300)
        problem = (
            f"It names {unknown}, which the player can neither see nor has named. Name only what is visible, what stands in "
            "the action, and what the ruling says."
        )
        yield _Fault(problem, by_lexicon=False)
    if SUCCESS.casefold() in normalized(observation):
        problem = f"It says {quoted(SUCCESS)}. Leave that out; the program adds it when the goal is reached."
        yield _Fault(problem, by_lexicon=False)


def _own_sentences(observation: str, ruling_text: str) -> list[str]:
    """Return the sentences that the ruling does not contain; a sentence of the ruling may be cut off by `...`."""
    # The engine writes `success` for the success phrase in a rulebook's text.
    known_sentences = " ".join(sentences(ruling_text[:MAX_TEXT]))
    known_sentences = f"{known_sentences} {known_sentences.replace(SUCCESS.casefold(), 'success')}"
    observed = dict.fromkeys(sentences(observation))
    return [sentence for sentence in observed if sentence.removesuffix("...").rstrip() not in known_sentences]


def _goal_faults(added: Iterable[str], *, done: bool) -> Iterator[_Fault]:
    sentence = _first_matching(added, _GOAL_MISSED) if done else _first_matching(added, _GOAL, unless=_OPEN_ENDED)
    if sentence:
        is_reached = "is reached" if done else "is not reached yet"
        yield _Fault(f"It says {quoted(sentence)}, but the goal {is_reached}. Leave the goal out.")


class WordsAgree(BuiltInRule):
    """Observations of a grounded draft agree with their rulings; else code `words_disagree`.

    An observation must not name anything that is invisible before and after the action and occurs in none of the
    action, the ruling, the introduction, the goal and the actions' templates. It must not report a success for a
    mistake or a transient failure, a failure for an accepted action, a goal that is not reached, or a missed goal that
    is reached. It must report a transient failure, and repeat texts of the knowledge record that the ruling mentions.
    See `judge_words`. If the script is not in English, problems from the English tables of phrases are warnings. A
    script without a working rulebook is left to `Replays`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        replayed = replay_draft(draft)
        if replayed is None:
            return
        for turn, fault in _problems(draft, replayed):
            message = f"The observation of turn {turn + 1} is wrong. {fault.sentence}"
            violation = self.violation(turn, "words_disagree", message)
            refuses = fault.refuses(replayed.world)
            yield violation if refuses else violation.model_copy(update={"severity": Severity.WARN})


def _problems(draft: Draft, replayed: ReplayedDraft) -> Iterator[tuple[int, _Fault]]:
    """Yield the index of a turn and a problem of its observation."""
    world, before = replayed.world, replayed.visible
    opening = draft.turns[0] if draft.turns else None
    if isinstance(opening, DungeonMasterTurn):
        text = opening.observation[:MAX_TEXT]
        yield from ((0, fault) for fault in _common_faults(world, text, before))
        yield from ((0, fault) for fault in _goal_faults(sentences(text), done=False))
    for step in replayed.exchanges:
        turn, ruling = step.answer, step.ruling
        text = turn.observation.rstrip().removesuffix(SUCCESS).rstrip() if ruling.done else turn.observation
        faults = _wording_faults(world, ruling, before, text, action=step.action, transient=turn.transient)
        yield from ((step.turn + 1, fault) for fault in faults)
        before = ruling.visible
