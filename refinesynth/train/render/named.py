"""Chat templates by name, for base models, whose tokenizers have none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from refinesynth.errors import InputError
from refinesynth.train.render.react import REACT_TEMPLATE

_FOLDER: Final = Path(__file__).with_name("templates")
NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "llama-3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "react": (),
}
"""The names, each with the control tokens that its template writes."""


def read_template(given: str | None) -> str | None:
    """The Jinja text of a template by its name, or of a file; None: the tokenizer's own.

    Raises:
        InputError: It is no name, and cannot be read as a file.
    """
    if given is None:
        return None
    if given == "react":
        return REACT_TEMPLATE
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
