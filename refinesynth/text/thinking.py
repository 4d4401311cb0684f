"""Thoughts that a reasoning model writes into the text of its answer, where no server separated the two.

Sources: the chat templates and reasoning parsers of DeepSeek-R1, Qwen3, QwQ, Seed-OSS, Magistral, Command A, Kimi-VL,
Hunyuan, Gemma 4, MedGemma and gpt-oss (harmony).
"""

import json
import re
from typing import NamedTuple


class Split(NamedTuple):
    """A text in its two parts."""

    thinking: str
    """Without its marks and surrounding blanks; empty where there is none."""
    text: str
    """The answer itself; the whole text, unchanged, where it holds no thoughts."""
    form: str | None
    """The mark that closes the thoughts, such as `</think>`; None where there are none."""


_XML = ("think", "thinking", "thought", "thoughts", "reasoning", "reason", "seed:think", "budget:thinking", "mm:think")
_MARKS: dict[str, str] = {
    **{f"<{name}>": f"</{name}>" for name in _XML},
    "[THINK]": "[/THINK]",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|think|>": "<|/think|>",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
}
"""What begins thoughts, and what ends them."""
_ANSWERS = (
    ("<answer>", "</answer>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<response>", "</response>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
"""What the same models put around their answer."""

_OPENING = re.compile(rf"\s*({'|'.join(map(re.escape, _MARKS))})", re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, _MARKS.values())), re.IGNORECASE)
_HINT = re.compile(r"[<\[\u25c1]|\s*analysis")
"""Found in every text that holds thoughts, and quicker than all the others."""

_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?[^<]{0,100}<\|channel\|>\s*(?P<channel>\w+)(?P<header>[^<]{0,200}(?:<\|constrain\|>[^<]{0,100})?)"
    r"<\|message\|>(?P<text>.*?)(?:<\|(?:end|return|call)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_BARE_HARMONY = re.compile(r"\s*analysis(?P<thinking>.*)assistant\s*final(?P<text>.*)\Z", re.DOTALL)
"""Harmony after a server left its special tokens out."""


def split_thinking(text: str) -> Split:
    """Separate the thoughts at the beginning of a model's text from its answer.

    Blocks may follow one another, stand behind blanks, and lack their opening mark, as where the prompt holds it: then
    all that stands before the closing mark is thought. A block that is never closed is all thought, and the answer is
    empty. Marks within the answer, and in a text that is JSON as a whole, are left alone.
    """
    if _HINT.search(text) is None:
        return Split("", text, None)
    harmony = _harmony(text)
    if harmony is not None:
        return harmony
    if (opening := _OPENING.match(text)) is None and ((closing := _CLOSING.search(text)) is None or _is_json(text)):
        return Split("", text, None)
    thoughts: list[str] = []
    form, rest = None, text
    while True:
        if (opening := _OPENING.match(rest)) is not None:
            form = _MARKS[next(mark for mark in _MARKS if mark.casefold() == opening[1].casefold())]
            begin, closing = opening.end(), re.compile(re.escape(form), re.IGNORECASE).search(rest, opening.end())
        else:
            begin, closing = 0, _unopened(rest)
            if closing is None:
                break
            form = closing[0].casefold() if closing[0].startswith("<") and "|" not in closing[0] else closing[0]
        thoughts.append(rest[begin : len(rest) if closing is None else closing.start()].strip())
        rest = "" if closing is None else rest[closing.end() :]
    return Split("\n\n".join(filter(None, thoughts)), _unwrapped(rest.strip()), form)


def _unopened(text: str) -> re.Match[str] | None:
    """The first closing mark of a block that does not begin in `text`."""
    for closing in _CLOSING.finditer(text):
        opening = next(begin for begin, end in _MARKS.items() if end.casefold() == closing[0].casefold())
        if opening.casefold() not in text[: closing.start()].casefold():
            return None if _is_json(text) else closing
    return None


def _harmony(text: str) -> Split | None:
    if "<|channel|>" in text:
        parts = [*_HARMONY.finditer(text)]
        if not parts or text[: parts[0].start()].strip():
            return None
        # A call is written in a channel with a recipient; it is left as it stands, for whoever reads calls in text.
        thinking = [
            part["text"].strip() for part in parts if part["channel"] == "analysis" and "to=" not in part["header"]
        ]
        answers = [
            part[0] if "to=" in part["header"] else part["text"]
            for part in parts
            if part["channel"] != "analysis" or "to=" in part["header"]
        ]
        return Split("\n\n".join(filter(None, thinking)), "".join(answers).strip(), "<|channel|>")
    bare = _BARE_HARMONY.match(text)
    return None if bare is None else Split(bare["thinking"].strip(), bare["text"].strip(), "assistantfinal")


def _unwrapped(text: str) -> str:
    for opening, closing in _ANSWERS:
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(closing).strip()
    return text


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False
