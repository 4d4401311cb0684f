"""Chat templates by name, for base models, whose tokenizers have none.

`react`, for those that have no template at all, is plain ReAct text (the paper trains base models and prints no
template, section 4.1):

    <bos>{the task, the first user message}
    Thought: ...
    Action: ...<eos>

    Observation: {every later user message}
    Thought: ...
    Action: ...<eos>

Every assistant turn ends in the tokenizer's end-of-sequence token, mid-conversation too, so that an agent stops after
its action. There is no header before an assistant turn: it begins on a new line, and its own `Thought:` is learned. One
line feed, since tokenizers in GPT-2's manner make one token of two at a prompt's end, and two tokens where a word
follows. A system turn stands before the task. A `bos_token` is written once, where there is one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from refinesynth.errors import InputError

_FOLDER: Final = Path(__file__).with_name("templates")
NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "llama-3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "react": (),
}
"""The names, each with the control tokens that its template writes."""
REACT_TEMPLATE: Final = (_FOLDER / "react.jinja").read_text(encoding="utf-8")
"""Needs an `eos_token`."""


def read_template(given: str | None) -> str | None:
    """The Jinja text of a template by its name, or of a file; None: the tokenizer's own.

    Raises:
        InputError: It is no name, and cannot be read as a file.
    """
    if given is None:
        return None
    path = _FOLDER / f"{given}.jinja" if given in NAMED else Path(given)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the chat template {given!r} is none of {', '.join(NAMED)}, and as a file it cannot be read: {error}"
        ) from error


def check_tokens(given: str | None, tokenizer: Any) -> None:
    """Make sure that a tokenizer has the tokens that a template by name is made of.

    Raises:
        InputError: It has not: to it they would be a few characters each.
    """
    there: Mapping[str, int] = tokenizer.get_vocab()
    missing = [token for token in NAMED.get(given or "", ()) if token not in there]
    if missing:
        raise InputError(
            f"the chat template {given!r} is not made for this model: its tokenizer has no {' and no '.join(missing)}. "
            "Give --set chat_template=null for the tokenizer's own template, --chat-template react for plain text, or a file"
        )
