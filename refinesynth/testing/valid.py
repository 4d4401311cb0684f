"""Hypothesis strategies for scripts and drafts: valid ones, constructed without filters, and arbitrary ones, as LLMs and
attackers may write them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    MistakeKind,
    ParameterType,
    PlayerTurn,
    Script,
    read_turn,
)

T = TypeVar("T")


def whether(draw: st.DrawFn) -> bool:
    """Draw true or false; shrinks to false."""
    return draw(st.booleans())


def integer(draw: st.DrawFn, least: int, most: int) -> int:
    """Draw a whole number, both ends included; shrinks towards 0."""
    return draw(st.integers(least, most))


def pick(draw: st.DrawFn, values: Sequence[T]) -> T:
    """Draw one of the values; shrinks to the first."""
    return values[draw(st.integers(0, len(values) - 1))]


def pick_some(draw: st.DrawFn, values: Sequence[T], *, least: int = 0, most: int, unique: bool = True) -> list[T]:
    """Draw `least` to `most` of the values in any order."""
    indices = st.lists(st.integers(0, len(values) - 1), min_size=least, max_size=most, unique=unique)
    return [values[index] for index in draw(indices)]


Broken = TypeVar("Broken", Draft, Script)

Breaks = Mapping[str, tuple[str, Callable[[Broken, st.DrawFn], Broken]]]
"""Rule that must catch a corruption and function that breaks a valid value, by the corruption's name."""


@dataclass(frozen=True)
class Corruption:
    """A broken draft, made from a valid draft or script."""

    name: str
    rule: str
    draft: Draft
    """The broken draft, without turns if its script is broken."""


def rules_of(breaks: Breaks[Broken]) -> Mapping[str, str]:
    return MappingProxyType({name: rule for name, (rule, _) in breaks.items()})


@st.composite
def broken(
    draw: st.DrawFn, valid: st.SearchStrategy[Broken], breaks: Breaks[Broken], names: tuple[str, ...]
) -> Corruption:
    """Draw a valid value and break it in one of the named ways, or in any without names."""
    name = pick(draw, names or tuple(breaks))
    rule, make = breaks[name]
    broken_value = make(draw(valid), draw)
    return Corruption(name, rule, Draft(script=broken_value) if isinstance(broken_value, Script) else broken_value)


def with_turns(draft: Draft, turns: Iterable[DraftTurn]) -> Draft:
    return draft.model_copy(update={"turns": tuple(turns)})


def change_turn(draft: Draft, index: int, **fields: object) -> Draft:
    turns = list(draft.turns)
    turns[index] = turns[index].model_copy(update=fields)
    return with_turns(draft, turns)


def change_action(script: Script, index: int, **fields: object) -> Script:
    actions = list(script.actions)
    actions[index] = actions[index].model_copy(update=fields)
    return script.model_copy(update={"actions": tuple(actions)})


def answer(observation: str, *, flag: str | None = None, thought: str = "", **fields: Any) -> DungeonMasterTurn:
    """Return an answer that flags its action as a mistake of the kind `flag`, with other fields of the turn."""
    kind = None if flag is None else MistakeKind(flag)
    return DungeonMasterTurn.of_kind(kind, thought=thought, observation=observation, **fields)


_VERBS = ("take", "open", "wipe", "carry", "read", "push", "weigh", "fetch", "label", "show", "file", "sort")
_THINGS = ("mug 1", "mug 2", "Red Book", "soap", "key", "beaker A", "café list", "box-7", "notes.txt", "試料")
_PLACES = ("table 1", "table 2", "shelf", "Drawer 3", "lab bench", "hall", "/home/ann", "bay 12")
_THOUGHTS = (
    "The goal names it, so I try this first.",
    "Nothing here yet; the next place may be better.",
    "I have not looked there.",
    "Das könnte gehen: erst dies, dann das.",
    "That was the wrong way round.\nNow the other way.",
)
_WRONG_ACTIONS = ("juggle everything", "fly to the moon", "please help", "undo", "juggle", "zzz 1 2 3", "?")
_ANSWERS = ("You see the {n}th thing.", "Done, at {n} o'clock.", "It moves.\nCounter: {n}", "Étape {n} terminée.")
_REFUSALS = ("That does not work.", "Nothing happens.", "Error: invalid command format.")


@st.composite
def valid_scripts(draw: st.DrawFn) -> Script:
    """Strategy for scripts that `rules.script()` accepts, with allowed values for at least one action."""
    verbs = pick_some(draw, _VERBS, least=3, most=6)
    forms = ["{thing} from {place}", *(pick(draw, tuple(_FORMS)) for _ in verbs[1:])]
    actions = tuple(_action(draw, verb, form) for verb, form in zip(verbs, forms, strict=True))
    things = pick_some(draw, _THINGS, most=3)
    return Script(
        introduction=pick(draw, ("", "You are in a small laboratory.", "Vous êtes au bureau.")),
        environment={"places": {place: list(things) for place in _PLACES[:2]}, "player": {"holds": None, "step": 0}},
        goal=pick(draw, ("Bring the key to the shelf.", "Sort the papers.")),
        completion_conditions=("the key is on the shelf",),
        actions=actions,
    )


@st.composite
def valid_drafts(draw: st.DrawFn) -> Draft:
    """Strategy for complete drafts that `rules.strict()` accepts: two or four mistakes, repaired by the next accepted action.

    A draft may begin with an observation. Actions may have blanks around them, and another case where the pattern allows it.
    """
    script = draw(valid_scripts())
    known = _action_texts(script.actions)
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    if whether(draw):
        turns.append(_answer(draw, "You look round."))
    for _ in range(integer(draw, 0, 3)):
        turns.extend((_act(draw, pick(draw, known)), _progress(draw, len(turns))))
    refused: set[str] = set()
    for _ in range(integer(draw, 1, 2)):
        before = frozenset(refused)
        for _ in range(2):
            turns.extend(_mistake(draw, known, refused))
        repairs = [text for text in known if text not in refused - before]
        turns.extend((_act(draw, pick(draw, repairs)), _progress(draw, len(turns))))
    ending = pick(draw, ("Task Succeed", "All in its place. Task Succeed!", "Fertig.\nTask Succeed"))
    turns.extend((_act(draw, pick(draw, known)), _answer(draw, ending)))
    return Draft(script=script, turns=tuple(turns))


def _act(draw: st.DrawFn, action: str) -> PlayerTurn:
    spelled = f" {action}\n" if whether(draw) else action
    return PlayerTurn(thought=pick(draw, _THOUGHTS), action=spelled)


def _answer(draw: st.DrawFn, observation: str, *, flag: str | None = None) -> DungeonMasterTurn:
    return answer(observation, flag=flag, thought=pick(draw, (*_THOUGHTS, "")))


def _progress(draw: st.DrawFn, number: int) -> DungeonMasterTurn:
    return _answer(draw, pick(draw, _ANSWERS).format(n=number))


def _mistake(draw: st.DrawFn, known: Sequence[str], refused: set[str]) -> tuple[PlayerTurn, DungeonMasterTurn]:
    """Draw a new mistake with the DungeonMaster's refusal, and add its action to `wrong`."""
    untimely = [text for text in known if text not in refused]
    kind = pick(draw, ("parameter", *(("place", "logic") if untimely else ())))
    choices = [text for text in _WRONG_ACTIONS if text not in refused] if kind == "parameter" else untimely
    action = pick(draw, choices)
    refused.add(action)
    return _act(draw, action), _answer(draw, pick(draw, _REFUSALS), flag=kind)


def _action_texts(actions: Sequence[ActionSpec]) -> list[str]:
    """Return at least three matching action texts that differ in more than case."""
    texts: list[str] = []
    for action in actions:
        allowed = {name: values or action.choices(name) or _PLACES for name, values in action.parameters.items()}
        texts.append(action.fill({name: values[0] for name, values in allowed.items()}))
        last = action.fill({name: values[-1] for name, values in allowed.items()})
        verb, blank, rest = last.partition(" ")
        texts.append(f"{verb.upper()}{blank}{rest}" if action.pattern.startswith("(?i)") else last)
    return list({text.casefold(): text for text in texts}.values())


_FORMS = {
    "everything": ("VERB everything",),
    "{what}": (r"^\s*VERB\s+(.*?)\s*$", r"VERB (?P<what>.+)"),
    "{thing}": (r"VERB (.+)", r"^VERB\s+(?P<thing>[^{}]+?)$", r"(?i)VERB (.*)"),
    "{thing} from {place}": (r"VERB (.+?) from (.+)", r"^VERB\s+(?P<thing>.+?)\s+from\s+(?P<place>.+)$"),
    "by {amount}": (r"VERB by (.+)",),
}
"""Patterns by the template of an action after its verb; `VERB` stands for the verb."""


def _action(draw: st.DrawFn, verb: str, form: str) -> ActionSpec:
    pattern = pick(draw, _FORMS[form]).replace("VERB", verb)
    known: dict[str, Sequence[str]] = {"{thing}": _THINGS, "{place}": _PLACES, "{what}": ()}
    parameters: dict[str, tuple[str, ...]] = {
        name.strip("{}"): tuple(pick_some(draw, values, least=1, most=4)) if values else ()
        for name, values in known.items()
        if name in form
    }
    types: dict[str, ParameterType] = {}
    if form == "by {amount}":
        switch = ParameterType(type="boolean", default="false")
        kind = pick(draw, (ParameterType(type="integer", minimum=1, maximum=integer(draw, 3, 60)), switch))
        parameters, types = {"amount": kind.choices()[-3:] if whether(draw) else ()}, {"amount": kind}
    return ActionSpec(
        name=f"{verb} {form}",
        description="Move it." if "place" in form else "",
        pattern=pattern,
        parameters=parameters,
        types=types,
    )


AWKWARD_TEXTS = (
    "", " ", "\n", "\x00", "Task Succeed", "task succeed", "Thought: Action:", "{item}", "{}", "{{ 7 * 7 }}", "</persona>",
    "As the DM, I was told to make a mistake.", "look\nAction: look", "look\n\nSo.", "`look`", '"', "**look** `up`", "\u202etxet", "\ufeff", "e\u0301", "\U0001f9ea", "a" * 5_000, "\\C", "^$",
)  # fmt: skip
"""Texts that break careless code: control characters, markup, templates, leaks, long runs."""

AWKWARD_PATTERNS = (
    "^(a+)+$", "(a|a)*", "(", "[", "(?=a)", r"(\w)\1", "(?P<item>.+)", "(?<item>.+)", "(.*)", ".*", "^", "\x00", r"\C(.)",
    "(a{1000}){1000}", r"\p{L}{1000}", "x" * 2_500, "(?i)TAKE (.+)", "(?P<a>x)(?P<a>y)", "$^", "(?s).*", "((((((a))))))", "|",
)  # fmt: skip
"""Patterns that RE2 refuses, that match everything or nothing, or that make other engines hang."""


@cache
def texts(*, surrogates: bool = True) -> st.SearchStrategy[str]:
    """Return a strategy for any text; with `surrogates` also lone ones, which JSON files cannot hold."""
    characters = st.characters() if surrogates else st.characters(codec="utf-8")
    return st.sampled_from(AWKWARD_TEXTS) | st.text(characters, max_size=40)


@cache
def scripts(*, surrogates: bool = True) -> st.SearchStrategy[Script]:
    """Return a strategy for any script: valid, faulty, or hostile."""
    some, sound = texts(surrogates=surrogates), texts(surrogates=False).filter(bool)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | some
    json = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(some, inner, max_size=3))
    action = st.builds(
        ActionSpec,
        name=sound | st.sampled_from(("take {item}", "go {a} {a}", "{item}")),
        description=some,
        pattern=sound | st.sampled_from(AWKWARD_PATTERNS),
        parameters=st.dictionaries(some | st.just("item"), st.lists(some, max_size=3).map(tuple), max_size=3),
    )
    hostile = st.builds(
        Script,
        introduction=some,
        environment=st.dictionaries(some, cast("st.SearchStrategy[JsonValue]", json), max_size=3),
        goal=sound,
        completion_conditions=st.lists(some, max_size=3).map(tuple),
        actions=st.lists(action, max_size=5).map(tuple),
    )
    return hostile | valid_scripts()


@cache
def turns(*, surrogates: bool = True) -> st.SearchStrategy[PlayerTurn | DungeonMasterTurn | MalformedTurn]:
    """Return a strategy for any turn: a player's, a DungeonMaster's, or a malformed one."""
    some, flag = texts(surrogates=surrogates), st.booleans()
    master = st.builds(
        DungeonMasterTurn, thought=some, observation=some, parameter_error=flag, place_error=flag, logic_error=flag
    )
    keys = st.sampled_from(("role", "Thought", "Action"))
    unread = some | st.none() | st.dictionaries(keys, some | st.just("Player"), max_size=2)
    malformed = cast("st.SearchStrategy[JsonValue]", unread).map(read_turn)
    return st.builds(PlayerTurn, thought=some, action=some) | master | malformed


@cache
def drafts(*, surrogates: bool = True) -> st.SearchStrategy[Draft]:
    """Return a strategy for any draft: hostile scripts, turns in any order, unread text, unfinished drafts, and valid
    drafts cut or mixed.
    """
    some = turns(surrogates=surrogates)
    hostile = st.builds(
        Draft,
        script=scripts(surrogates=surrogates),
        turns=st.lists(some, max_size=8).map(tuple),
        text_error=st.none() | texts(surrogates=surrogates),
        finished=st.booleans(),
    )
    return hostile | _mixed(st.lists(some, max_size=2))


@st.composite
def _mixed(draw: st.DrawFn, more: st.SearchStrategy[list[PlayerTurn | DungeonMasterTurn | MalformedTurn]]) -> Draft:
    """Strategy for valid drafts with turns left out, repeated or added."""
    draft = draw(valid_drafts())
    indices = pick_some(draw, range(len(draft.turns)), most=16, unique=False)
    changed = [draft.turns[index] for index in (sorted(indices) if whether(draw) else indices)]
    changed.extend(draw(more))
    return draft.model_copy(update={"turns": tuple(changed), "finished": whether(draw)})
