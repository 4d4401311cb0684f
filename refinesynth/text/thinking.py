"""Thoughts of reasoning models within the text of an answer, from servers that do not separate them.

Sources: the chat templates and reasoning parsers of DeepSeek-R1, Qwen3, QwQ, Seed-OSS, Magistral, Command A, Kimi-VL,
Hunyuan, LongCat, Granite, Apertus, Gemma 4, MedGemma and gpt-oss (harmony).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Split(NamedTuple):
    """Thoughts and answer of a text."""

    thinking: str
    """Thoughts without marks and surrounding blanks."""
    text: str
    """Answer without thoughts; the whole unchanged text if there are no thoughts."""
    form: str | None
    """Mark of the format, mostly the closing one, such as `</think>`; None without thoughts."""


_PAIRS = (
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think|>", "<|/think|>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
)
"""Opening and closing marks of thoughts without XML tags."""
_NAME = r"(?:[a-z0-9]{1,20}[:_])?think(?:ing)?(?:[:_][a-z0-9]{1,20})?|thoughts?|reason(?:ing)?"
_MARK = re.compile(
    rf"<(?P<closes>/?)(?P<name>{_NAME})>|{'|'.join(re.escape(mark) for pair in _PAIRS for mark in pair)}",
    re.IGNORECASE | re.ASCII,  # without ASCII, \u0131 and \u0130 match i, and \u212a matches k
)
_ANSWERS = (
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
"""Marks around answers, of the same models."""
_KINDS = {mark.casefold(): (closing, mark != closing) for opening, closing in _PAIRS for mark in (opening, closing)}
"""Closing mark by mark, and True for opening marks."""

_HARMONY = re.compile(r"<\|(start|end|message|channel|constrain|return|call)\|>")
_HEADER_START = re.compile(r"\s*(?:assistant)?\s*(?:to=\S+\s*)?")
"""Pattern of the text before the first special token, if the prompt holds the beginning of the message."""
_WORD_PATTERNS = (
    # Harmony from a server that removes its special tokens.
    ("assistantfinal", re.compile(r"\s*analysis(?P<thinking>.*)assistant\n?final(?P<text>.*)", re.DOTALL)),
    (
        "assistantcommentary",
        re.compile(r"\s*analysis(?P<thinking>.*)assistant\n?commentary(?P<text> to=.*)", re.DOTALL),
    ),
    (
        "Here is my response:",
        re.compile(
            r"\s*Here(?:'s| is) my thought process:(?P<thinking>.*?)Here(?:'s| is) my response:(?P<text>.*)", re.DOTALL
        ),
    ),
)
"""Patterns of thoughts between words instead of marks."""
_FIRST_WORDS = ("analysis", "Here")
_JSON = re.compile(rf"\s*(?:{'|'.join(re.escape(opening) for opening, _ in _ANSWERS)})?\s*(?:```\w*\s*)?(?=[\[{{])")

_STRING_ENDS = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"\s*[,:\]}]', re.DOTALL)
_MAX_STRING_REST = 20_000
"""Maximum distance from a mark to the end of its JSON string, in characters; bounds the time."""


class _Mark(NamedTuple):
    start: int
    end: int
    kind: str
    """Closing mark of these thoughts."""
    is_opening: bool


def split_thinking(text: str) -> Split:
    """Separate the thoughts at the beginning of a model's text from its answer.

    There may be several blocks, with blanks before them. A block may lack its opening mark, which the prompt may hold:
    then all text before the closing mark is thought. A block without a closing mark is all thought, and the answer is
    empty. Marks within the answer, and in the strings of a JSON text, are ignored. Takes linear time.
    """
    if not ("<" in text or "[" in text or "\u25c1" in text or text.lstrip().startswith(_FIRST_WORDS)):
        return Split("", text, None)
    if (split := _split_harmony(text) or _split_by_words(text)) is not None:
        return split
    marks = [*_marks(text)]
    thoughts: list[str] = []
    position, index, form = 0, 0, None
    while index < len(marks):
        begin, mark = position, marks[index]
        if mark.is_opening and not text[position : mark.start].strip():
            begin = mark.end
            ends = (i for i in range(index + 1, len(marks)) if not marks[i].is_opening and marks[i].kind == mark.kind)
            closing = next(ends, len(marks))
        elif (closing := _find_unopened(text, position, marks, index)) is None:
            break
        form = mark.kind if closing == len(marks) else marks[closing].kind
        end, position = (len(text), len(text)) if closing == len(marks) else marks[closing][:2]
        thoughts.append(text[begin:end].strip())
        index = closing + 1
    if form is None:
        return Split("", text, None)
    return Split("\n\n".join(filter(None, thoughts)), _unwrap_answer(text[position:].strip()), form)


def _marks(text: str) -> Iterator[_Mark]:
    for match in _MARK.finditer(text):
        if match["name"] is None:
            yield _Mark(*match.span(), *_KINDS[match[0].casefold()])
        else:
            yield _Mark(*match.span(), f"</{match['name'].casefold()}>", not match["closes"])


def _find_unopened(text: str, position: int, marks: Sequence[_Mark], first: int) -> int | None:
    """Return the number of the first closing mark, from `first` on, without an opening mark after `position`."""
    opened = Counter[str]()
    for index in range(first, len(marks)):
        mark = marks[index]
        if not mark.is_opening and not opened[mark.kind]:
            return None if _is_quoted(text, position, mark) else index
        opened[mark.kind] += 1 if mark.is_opening else -1
    return None


def _is_quoted(text: str, position: int, mark: _Mark) -> bool:
    """Return whether a mark is in a string of a JSON text that begins at `position`."""
    if _JSON.match(text, position) is None:
        return False
    in_string = re.sub(r"\\.", "", text[position : mark.start], flags=re.DOTALL).count('"') % 2 == 1
    # The quotes of an incomplete draft are unbalanced; hence the string must also end after the mark.
    return in_string and _STRING_ENDS.match(text, mark.end, mark.end + _MAX_STRING_REST) is not None


def _split_harmony(text: str) -> Split | None:
    if "<|channel|>" not in text:
        return None
    first, *pieces = _HARMONY.split(text)
    header, thinking, answers = "", list[str](), list[str]()
    if _HEADER_START.fullmatch(first):
        header = first
    elif pieces[0] == "end":
        thinking.append(first.strip())
    else:
        return None
    for token, piece in zip(pieces[::2], pieces[1::2], strict=True):
        if token != "message":  # noqa: S105 - a token of harmony
            header = (header if token in {"channel", "constrain"} else "") + f"<|{token}|>{piece}"
        elif "to=" in header:
            # Calls stay in harmony's form, for the reader of calls in text.
            answers.append(f"{header}<|message|>{piece}<|call|>")
            header = ""
        else:
            (thinking if header.partition("<|channel|>")[2].strip() == "analysis" else answers).append(piece.strip())
            header = ""
    return Split("\n\n".join(filter(None, thinking)), "".join(answers).strip(), "<|channel|>")


def _split_by_words(text: str) -> Split | None:
    for form, pattern in _WORD_PATTERNS:
        if (match := pattern.fullmatch(text)) is not None:
            return Split(match["thinking"].strip(), match["text"].strip(), form)
    return None


def _unwrap_answer(text: str) -> str:
    for opening, closing in _ANSWERS:
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(closing).strip()
    return text
