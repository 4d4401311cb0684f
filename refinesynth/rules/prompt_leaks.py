"""Rule against thoughts that reveal the setup: the writer's role, its prompt, or a requested mistake."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from refinesynth.actions.patterns import Pattern, PatternError, to_utf8
from refinesynth.errors import ConfigurationError
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import Draft, MalformedTurn

_MASTER = r"(?:dm|(?:dungeon|game)[ -]?master)"
_ONE = r"(?:an?|one|two|some|another|the|my|this|at least \w+)"
_MAKE = r"(?:make|commit|introduce|simulate)"
# Not "an error message": after the word, the phrase must end or continue as a sentence.
_MISTAKE = (
    r"(?:mistake|error)s?(?:$|[^\w ]| (?:now|here|first|next|so|to|in|on|at|and|that|which|before|with|as|by|for)\b)"
)
_INTENT = r"(?:should|must|need to|have to|let me|let\Ws|going to|i\Wll)"
_ON_PURPOSE = r"(?:deliberate(?:ly)?|intentional(?:ly)?|purposely|purposefully|on purpose)"
_OBJECT = r"(?:an? (?:\w+ )?action|something|one)"
_FAILS = r"(?:(?:does not|will not|cannot|doesn\Wt|won\Wt|can\Wt) work|fails|is wrong)"
_SAYS = r"(?:says?|said|asks?|asked|tells?|told|wants?|wanted)"
_ORDERED = r"(?:told|asked|instructed|prompted|supposed|required|expected|meant)"

# An apostrophe is \W, because there are two in use.
LEAKS = (
    # The role: "As the DM, I ...", "I am playing the dungeon master", "the DM told me". Not "I send it as a DM".
    rf"\b(?:as the|as|(?:i am|i\Wm|being|playing|play)(?: the| an?)?) {_MASTER}\b",
    r"\bas an? (?:(?:dungeon|game)[ -]?master\b|dm,? i\b)",
    rf"\bthe {_MASTER} (?:said|says|told|tells|wants|flags|flagged|expects|will flag|has flagged)\b",
    r"\bdungeon master\Ws\b",
    r"\b(?:as|i am|i\Wm) an? (?:large |ai )?language model\b",
    r"\b(?:as|i am|i\Wm) an ai(?:[,.]| model\b| assistant\b)",
    r"\bi(?: am|\Wm) (?:role-?playing|simulating) (?:the |an? )?(?:player|agent|user)\b",
    r"\bas the player,",
    # The order: "I was told to make a mistake", "I must first make a plausible error", "let me fail on purpose".
    rf"\b{_ORDERED} to (?:\w+ )?{_MAKE} (?:{_ONE} )?(?:\w+ ){{0,2}}{_MISTAKE}",
    rf"\b{_ORDERED} (?:for|to answer with) {_ONE} (?:\w+ ){{0,2}}mistakes?\b",
    rf"\b(?:answer|respond) with {_ONE} (?:\w+ ){{0,2}}mistakes?\b",
    rf"\b{_INTENT} (?:(?:now|first|also|next) )?{_MAKE} {_ONE} (?:\w+ ){{0,2}}{_MISTAKE}",
    rf"\bi (?:will|want to) (?:(?:now|first|also|next) )?{_MAKE} {_ONE} (?:mistake|error) (?:here|now|first|next|by)\b",
    r"\bplausible (?:\w+ )?(?:mistake|error)s?\b",
    rf"\binclude {_ONE} (?:\w+ )?mistakes?\b",
    rf"\b{_ONE} {_ON_PURPOSE} {_MISTAKE}",
    rf"\b(?:mistake|error)s? {_ON_PURPOSE}\b",
    rf"\b{_ON_PURPOSE} (?:making|made|{_MAKE}|choose|pick|use|try|take|give|write) (?:\w+ ){{0,4}}(?:wrong|incorrect|invalid|mistaken?|error)s?\b",
    rf"\b(?:fail {_ON_PURPOSE}|(?:i|i\Wll|to|me) {_ON_PURPOSE} fail)\b",
    # The machinery: flag names, hidden parts of the script, the prompt and the private notes. A shell has a prompt,
    # too.
    r"\b(?:parameter|place|logic)_error\b",
    r"\bcompletion conditions?\b",
    rf"\b(?:my system prompt|the system prompt {_SAYS}|my prompt {_SAYS})\b",
    rf"\bthe prompt {_SAYS} (?:\w+ ){{0,4}}(?:two|three|at least \w+) (?:\w+ ){{0,2}}(?:mistake|error)s?\b",
    r"\b(?:my|the) (?:hidden|private) (?:instructions?|prompt)\b",
    r"\bprivate note (?:asks?|asked|tells?|told|wants?|wanted) (?:me|for)\b",
    rf"\b(?:{_INTENT}|{_ORDERED} to) (?:take|choose|pick|try) {_OBJECT} that {_FAILS}\b",
    r"\b(?:private note|(?:this|that|the) (?:note|instruction))\b[^.]{0,60}\b(?:make|making|for|with) (?:an? )?(?:\w+ ){0,2}(?:mistake|error)s?\b",
)
"""Case-insensitive RE2 patterns of thoughts that no player in the scene would have."""

_MEMORY = 8 * 1024 * 1024
"""Memory limit of all patterns together, in bytes. They are trusted and read every thought, so the limit is higher than
for a script's patterns."""


class NoLeaks(BuiltInRule):
    """No thought reveals role or prompt; else code `leak`.

    The built-in patterns are narrow on purpose: a scene may have a media player, a command prompt or a DM to send.

    Raises:
        ConfigurationError: On construction, RE2 refuses a pattern of `also`.
    """

    also: tuple[str, ...] = ()
    """Additional case-insensitive RE2 patterns."""
    builtin: bool = True
    """True to apply `LEAKS` too."""
    voices: tuple[Literal["Player", "DM"], ...] = ("Player",)
    """Roles whose thoughts are checked. A DungeonMaster's thoughts are neither shown nor trained on and not included by
    default."""

    def __post_init__(self) -> None:
        _combined_pattern(self.also, self.builtin)

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        pattern = _combined_pattern(self.also, self.builtin)
        for index, turn in enumerate(draft.turns):
            if isinstance(turn, MalformedTurn) or turn.role not in self.voices:
                continue
            phrase = pattern.search(to_utf8(turn.thought)) if pattern else None
            if phrase is not None:
                message = (
                    f"The thought of turn {index + 1} says {quoted(phrase)}, which nobody in the scene can know. A player thinks "
                    "only of the place, the goal and what it was told there; mistakes are made in good faith."
                )
                yield self.violation(index, "leak", message)


@lru_cache(maxsize=64)
def _combined_pattern(also: tuple[str, ...], builtin: bool) -> Pattern | None:
    """Return all patterns as one automaton, so a thought is read once; None without patterns."""
    compiled, patterns = None, (*LEAKS, *also) if builtin else also
    combined = "|".join(f"(?:{pattern})" for pattern in patterns)
    for pattern in (*also, combined) if patterns else ():  # each alone first, for a message that names it
        try:
            compiled = Pattern(pattern, ignore_case=True, max_memory=_MEMORY)
        except PatternError as error:
            raise ConfigurationError(f"NoLeaks(also=...) cannot use {quoted(pattern)}: {error}") from error
    return compiled
