"""Which script a text is written in, and roughly which language."""

import unicodedata
from collections import Counter
from functools import lru_cache

from refinesynth.personas.grams import words

UNKNOWN = "unknown"

_LOOKED_AT = 2_000
"""Characters at the beginning that are looked at."""

_NAMES = {"Cjk": "Han", "Ideographic": "Han"}
_BY_SCRIPT = {
    "Hangul": "ko",
    "Greek": "el",
    "Hebrew": "he",
    "Thai": "th",
    "Armenian": "hy",
    "Georgian": "ka",
    "Bengali": "bn",
    "Tamil": "ta",
    "Telugu": "te",
    "Devanagari": "hi",
    "Arabic": "ar",
    "Cyrillic": "ru",
    "Han": "zh",
    "Hiragana": "ja",
    "Katakana": "ja",
}
"""The most frequent language of a script, where its words do not tell more."""

_FREQUENT = {
    language: frozenset(listed.split())
    for language, listed in {
        "en": "the a an of and in to who is with for that his her their on as at from has by this she he was",
        "de": "der die das und ein eine einer eines mit von dem den ist für im auf zu sich auch aus bei nicht seine ihre",
        "fr": "le la les un une des et du de en est pour dans qui avec sur au aux par son sa ses une ce",
        "es": "el la los las un una de y en que con por para es del al su sus se como más",
        "pt": "o a os as um uma de e em que com por para é do da dos das no na seu sua não",
        "it": "il lo la i gli le un una di e in che con per è del della nel sua suo dei al",
        "nl": "de het een van en in met die dat voor op is zijn haar aan bij te uit als naar",
        "pl": "i w z na do się jest który która że od po przez dla jako swoje nie oraz o",
        "sv": "och en ett som i på av med för att är den det till sin har inte om från",
        "tr": "ve bir bu için ile olan de da çok olarak sonra kadar gibi daha olan yaşayan",
        "id": "yang dan di dengan untuk seorang dari pada ke ini itu dalam adalah sebagai telah",
        "vi": "một là và của người trong với cho những các được đã có không từ tại",
    }.items()
}
"""Words by which languages in Latin script are told."""
_UKRAINIAN = frozenset("іїєґ")


def script_of(text: str) -> str:
    """The script of most letters, by Unicode's names of them: Latin, Cyrillic, Han, ...; `unknown` without any letter."""
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text[:_LOOKED_AT])) else UNKNOWN
    counted = Counter(map(_script, filter(str.isalpha, text[:_LOOKED_AT])))
    return min(counted, key=lambda name: (-counted[name], name)) if counted else UNKNOWN


def language_of(text: str) -> str:
    """A guess at the language, by script and frequent words: an ISO 639-1 code, or `unknown`.

    Only for counting: short texts and related languages are often told wrongly.
    """
    script = script_of(text)
    if script == "Latin":
        found = set(words(text[:_LOOKED_AT]))
        scores = {language: len(listed & found) for language, listed in _FREQUENT.items()}
        best = max(scores, key=lambda language: (scores[language], language == "en"))
        return best if scores[best] else UNKNOWN
    if script in ("Han", "Hiragana", "Katakana"):
        kana = any(
            _script(character) in ("Hiragana", "Katakana") for character in text[:_LOOKED_AT] if character.isalpha()
        )
        return "ja" if kana else "zh"
    if script == "Cyrillic" and not _UKRAINIAN.isdisjoint(text[:_LOOKED_AT].casefold()):
        return "uk"
    return _BY_SCRIPT.get(script, UNKNOWN)


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    name = unicodedata.name(character, UNKNOWN).partition(" ")[0]
    # Half-width kana, `CJK UNIFIED IDEOGRAPH-4E00`, and the like.
    name = name.partition("-")[0].capitalize()
    return _NAMES.get(name, name)
