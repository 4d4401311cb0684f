"""How many tokens a text is, by a tokenizer that is there without a download."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

TOKENIZER = "cl100k_base"
"""OpenAI's of GPT-4, the one by which litellm counts for models whose own it does not know. Others may count a tenth
otherwise, and more in other languages than English."""

_FOLDER = "TIKTOKEN_CACHE_DIR"


def count_tokens(text: str) -> int:
    """Tokens of a text by `TOKENIZER`; what looks like a control token is counted as the text that it is."""
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> "Encoding":
    import tiktoken

    # litellm brings the file along; importing litellm itself would take seconds.
    found = find_spec("litellm")
    before = os.environ.get(_FOLDER)
    if found is not None and found.origin is not None:
        os.environ[_FOLDER] = str(Path(found.origin).parent / "litellm_core_utils" / "tokenizers")
    try:
        return tiktoken.get_encoding(TOKENIZER)
    finally:
        os.environ.pop(_FOLDER, None)
        if before is not None:
            os.environ[_FOLDER] = before
