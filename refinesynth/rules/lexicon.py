"""What a sentence announces: that an action worked, that it did not, or that the goal is reached.

A small English lexicon, read clause by clause. It is narrow on purpose: a clause that is negated, conditional or an attempt
announces nothing, what stands in quotes is what a screen or a letter says, and a text in another language announces nothing at all.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

_KINDS = (
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
"""Verbs by what they bring about: whoever says that one of them happened says so of the others in its line."""

_PAST = {
    "take": "took|taken", "go": "went|gone", "put": "put", "set": "set", "lay": "laid", "leave": "left", "drive": "drove|driven",
    "shut": "shut", "cut": "cut", "write": "wrote|written", "give": "gave|given", "freeze": "froze|frozen", "wear": "wore|worn",
    "read": "read", "eat": "ate|eaten", "drink": "drank|drunk", "build": "built", "buy": "bought", "sell": "sold", "send": "sent",
    "hang": "hung", "light": "lit", "throw": "threw|thrown", "spin": "spun", "feed": "fed", "bring": "brought", "find": "found",
}  # fmt: skip

_OF_KIND = {verb: kind.split() for kind in _KINDS for verb in kind.split()}

_WEAK = "from to in on at with into of the a an and for my your all look around please l ls"
_NO_VERBS = frozenset(_WEAK.split())
"""Words an action may begin with that say nothing of what it brings about."""

_OPEN_ENDED = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|nowhere|cannot|unable|hardly|if|unless|until|before|when|once|would|could|should"
    r"|must|might|may|can|will|need|needs|try|tries|tried|trying|attempt|attempts|attempted|want|wants|wanted|fail|fails|failed"
    r"|failing|instead|impossible|already|still|almost|nearly|remains?|stays?|refuses?|have to|has to|had to|about to)\b|n't\b"
)
"""What makes a clause one that announces no success."""

_SUCCESS = re.compile(
    r"\bsuccess(?:ful|fully)?\b|\bsucceed(?:s|ed)?\b|\b(?:it|that|this) work(?:s|ed)\b|\byou manage(?:d)? to\b"
    r"|\byou(?: are|'re)? now\b|\byou have now\b|\b(?:is|are) now\b(?! and then)"
    r"|(?<!\bright )(?<!\bfor )(?<!\bby )\bnow (?:is|are|has|have|rests?|lies?|sits?|stands?|holds?|shows?|reads?|says?)\b"
    r"|\byou (?:pull|push|slide|swing|pry|prise|force|yank|tug|wrench) (?:\w+ ){0,4}(?:open|shut|closed)\b"
    r"|(?<!\bright )(?<!\bfor )(?<!\bby )(?<!\bjust )\bnow[.!]*$|\b(?:swings?|slides?|clicks?|creaks?|pops?) (?:open|shut)\b"
    r"|^(?:done|ok|okay|all right|very well|well done|completed?)[.!]*$"
)
_FAILURE = re.compile(
    r"\bnothing happens\b|\b(?:has|had|have|with|to) no effect\b|\b(?:it|that|this) (?:does not|doesn't|did not|didn't) work\b"
    r"|\b(?:fails?|failed|failure)\b|\bin vain\b|\bto no avail\b|\bunsuccessful|\bwithout success\b|\btry again\b|\btr(?:y|ied) in vain\b"
    r"|^(?:syntax |format |input |unknown |fatal )?errors?\b|\berror (?:message|code|occurs|occurred)\b|\b(?:returns?|gives?|get|shows?|prints?|throws?|raises?) an error\b|\binvalid\b|\bnot a valid\b|\b(?:permission|access|request) denied\b|\bcommand not found\b|\bno such\b"
    r"|\b(?:is|are|was) (?:not|n't) (?:allowed|permitted|possible|available|recogni[sz]ed|understood|accepted)\b|\bimpossible\b"
    r"|\b(?:won't|will not|would not|wouldn't|does not|doesn't|did not|didn't|refuses? to) (?:budge|move|open|close|respond|start|work|let)\b"
    r"|\b(?:timed|times) out\b|\btimeout\b|\b(?:is|was|gets|got) (?:rejected|refused)\b|\bno response\b|\bnot respond"
    r"|\b(?:jams|jammed|sticks|stuck)\b(?! (?:out|up|to|in|on|between|with)\b)|\bthis time\b|\binterrupted\b|\bcomes? to nothing\b|\bnothing has changed\b|\bwithout (?:any )?effect\b|\ball is as (?:it was )?before\b"
)
_NO_FAILURE = re.compile(
    r"\b(?:no|without(?: an?| any)?|zero|0) (?:\w+ )?(?:errors?|failures?|problems?)\b|\bnever fails?\b"
)
_HINDRANCE = re.compile(
    r"\b(?:not|no|nothing|cannot|unable|again|attempts?|try|tries|waits?|lose|loses|grip|moment|moments|temporar\w*|busy|interrupt\w*|slips?|slipped|glitch|hiccup|later|almost"
    r"|nearly|drops?|delay\w*|lag\w*|stalls?|stalled|hangs|unavailable|refuses?|stuck|stays?|remains?)\b|n't\b"
)
_GOAL = re.compile(
    r"\b(?:task|goal|mission|quest|objective|job|assignment)s? (?:(?:is|are|was|has been|have been) )?(?:now |fully |finally |all )*"
    r"(?:succeed(?:s|ed)?|reached|achieved|completed?|accomplished|fulfilled|met|done|finished)\b"
    r"|\bcongratulations\b|\bmission accomplished\b|\byou (?:have |'ve )?(?:now |finally |successfully )?"
    r"(?:won|succeeded|(?:reached|achieved|completed|accomplished|fulfilled|finished|met) (?:the|your) (?:\w+ )?(?:goal|task|mission|quest|objective|job))\b"
    r"|\beverything (?:that was asked )?is (?:now )?(?:done|completed?)\b"
)
_GOAL_MISSED = re.compile(
    r"\b(?:task|goal|mission|quest|objective|job) (?:is|has|was|remains)(?: been)?(?: still)?(?: not|n't| un)\b"
    r"|\b(?:task|goal|mission|quest|objective) (?:is|remains) (?:unreached|unfinished|incomplete|open)\b|\b(?:there is|you have) (?:still )?more to (?:do|be done)\b"
)

_SENTENCES = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSES = re.compile(r"[,:;\u2013\u2014]\s+|\s+(?:but|yet|although|though|while|because|since|as)\s+")
_QUOTED = re.compile(r"\"[^\"\n]{0,2000}\"|\u201c[^\u201c\u201d\n]{0,2000}\u201d|«[^«»\n]{0,2000}»|`[^`\n]{0,2000}`")


def plain(text: str) -> str:
    """A text in lower case on one line, with one kind of apostrophe."""
    return " ".join(text.casefold().replace("\u2019", "'").split())


def sentences(text: str) -> list[str]:
    """Its sentences in lower case, without what stands in quotes; lines end sentences too."""
    return [said for part in _SENTENCES.split(_QUOTED.sub(" ", text)) if (said := plain(part))]


def verbs_of(action: str) -> frozenset[str]:
    """What an action, or the template of one, would bring about: its verb and those that mean about the same."""
    words = re.findall(r"[^\W\d_]+", re.sub(r"\{[^{}]*\}", " ", action.casefold()[:500]))
    found = [verb for word in words for verb in _OF_KIND.get(word, ())]
    first = [word for word in words[:1] if word not in _NO_VERBS]
    return frozenset((*found, *first))


def tells_success(sentence: str, verbs: Iterable[str]) -> bool:
    """Whether it says that one of the verbs, or something in general, was done."""
    done = _done(frozenset(verbs))
    return any(
        not _OPEN_ENDED.search(clause) and (_SUCCESS.search(clause) or (done is not None and done.search(clause)))
        for clause in _clauses(sentence)
    )


def tells_failure(sentence: str, verbs: Iterable[str]) -> bool:
    """Whether it says that one of the verbs, or something in general, could not be done."""
    undone = _undone(frozenset(verbs))
    return any(
        not _NO_FAILURE.search(clause) and (_FAILURE.search(clause) or undone.search(clause))
        for clause in _clauses(sentence)
    )


def tells_hindrance(text: str) -> bool:
    """Whether anything in it sounds as if something did not go as it should; easily satisfied."""
    return any(_FAILURE.search(said) or _HINDRANCE.search(said) for said in sentences(text))


def tells_goal(sentence: str) -> bool:
    """Whether it says that the goal is reached."""
    return any(_GOAL.search(clause) and not _OPEN_ENDED.search(clause) for clause in _clauses(sentence))


def tells_no_goal(sentence: str) -> bool:
    """Whether it says that the goal is not reached yet."""
    return any(map(_GOAL_MISSED.search, _clauses(sentence)))


def _clauses(sentence: str) -> list[str]:
    return [clause.strip() for clause in _CLAUSES.split(sentence) if clause.strip()]


@lru_cache(maxsize=1_024)
def _done(verbs: frozenset[str]) -> re.Pattern[str] | None:
    """That one of these was done, as a pattern; None for none."""
    if not verbs:
        return None
    now, past = "|".join(sorted(verbs)), "|".join(sorted({_past(verb) for verb in verbs}))
    manner = r"(?:\w+ly |now |then |just |also |finally )?"
    opening = [verb for verb in verbs if verb in {"open", "unlock", "close", "shut", "lock"}]
    third = r"|\byou (?:\w+ly )?reach(?:ed)? (?!for|out|in)\b" if "go" in verbs else ""
    third += rf"|\b(?:{'|'.join(opening)})s\b" if opening else ""
    return re.compile(
        rf"\byou {manner}(?:{now}|{past})\b|^(?:{past})[.!]*$|\byou(?: have|'ve) {manner}(?:{past})\b|\bhas been {manner}(?:{past})\b"
        rf"|\b(?:is|are) in your (?:hands?|bag|inventory|possession)\b{third}"
    )


@lru_cache(maxsize=1_024)
def _undone(verbs: frozenset[str]) -> re.Pattern[str]:
    """That one of these, or it, could not be done, as a pattern."""
    what = rf"(?:{'|'.join(('do', *sorted(verbs)))})"
    return re.compile(
        rf"\b(?:cannot|can not|can't|could not|couldn't|unable to|not able to|may not|are not allowed to|do not|don't|did not|didn't)"
        rf" (?:\w+ )?{what}\b|\b(?:cannot|can't|can not|could not|couldn't) be \w+"
    )


def _past(verb: str) -> str:
    if verb in _PAST:
        return _PAST[verb]
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}(?:{verb[-1]})?ed"
