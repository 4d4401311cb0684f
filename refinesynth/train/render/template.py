"""Chat templates as functions from messages to text, and named templates.

`react` writes plain ReAct text. It is for base models, whose tokenizers have no template. (The paper, section 4.1,
trains base models and prints no template.)

    <bos>{the task, the first user message}
    Thought: ...
    Action: ...<eos>

    Observation: {every later user message}
    Thought: ...
    Action: ...<eos>

Every assistant turn ends with the end-of-sequence token: an agent stops after its action. An assistant turn has no
header: it begins on a new line, and its `Thought:` is trained. The separator is a single line feed: GPT-2's tokenizers
encode two line feeds as one token at the end of a prompt, but as two tokens before a word.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import THOUGHTS, ToolCall

_FOLDER: Final = Path(__file__).with_name("templates")
NAMED_TEMPLATES: Final = ("llama-3", "chatml", "react")
REACT_TEMPLATE: Final = (_FOLDER / "react.jinja").read_text(encoding="utf-8")
"""Template `react`. The tokenizer needs an `eos_token`."""


def read_template(name: str | None) -> str | None:
    """Read a named template or a Jinja file; None stays None. Raises `InputError` if the file cannot be read."""
    if name is None:
        return None
    path = _FOLDER / f"{name}.jinja" if name in NAMED_TEMPLATES else Path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the chat template {name!r} is none of {', '.join(NAMED_TEMPLATES)}, and as a file it cannot be read: {error}"
        ) from error


class TemplateError(InputError):
    """Correct labels cannot be computed with this chat template and tokenizer."""


class RewritesHistoryError(TemplateError):
    """The template rewrites messages: one text cannot train all turns."""


ChatMessage = Mapping[str, Any]
"""Message for a chat template: `role`, `content`, optionally one of `THOUGHTS`, `tool_calls`, `tool_call_id`."""
Tools = Sequence[Mapping[str, Any]]
"""Functions that a model may call, in the form of a chat completion's `tools`."""

_WORD: Final = {"type": "object", "properties": {"word": {"type": "string", "description": "words"}}}
_PROBE: Final = {
    "type": "function",
    "function": {"name": "probe", "description": "words", "parameters": {**_WORD, "required": ["word"]}},
}


class ChatTemplate:
    """Chat template of one tokenizer."""

    def __init__(
        self, tokenizer: Any, source: str | None = None, *, variables: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Take the Jinja text `source`; default: the tokenizer's own template, else `REACT_TEMPLATE`.

        `variables`, such as `enable_thinking`, become defaults in the template. Raises `TemplateError` if the template
        does not read a variable, if the tokenizer has several templates and no default, or if it has neither a template
        nor an end-of-sequence token.
        """
        self._tokenizer = tokenizer
        self.raw = source if source is not None else _tokenizer_template(tokenizer)
        """The template without the variables."""
        self.source = _with_defaults(self.raw, variables)
        """The template with the variables as defaults, for the tuned model's tokenizer."""

    @cached_property
    def thought(self) -> str | None:
        """The first of `THOUGHTS` that the template reads; None if it reads none."""
        keys = (key for key in THOUGHTS if re.search(rf"""(?:\.|\[\s*['"]|get\(\s*['"]){key}\b""", self.source))
        return next(keys, None)

    def write(self, messages: Sequence[ChatMessage], *, prompt: bool = False, tools: Tools = ()) -> str:
        """Write messages and `tools` as text; `prompt` adds the generation prompt. Raises `TemplateError`."""
        if not messages:
            return ""
        options = {"chat_template": self.source, "tokenize": False, "add_generation_prompt": prompt}
        try:
            return str(self._tokenizer.apply_chat_template(list(messages), tools=list(tools) or None, **options))
        except Exception as error:  # A template is third-party code and may raise anything.
            raise TemplateError(
                f"the chat template fails on this conversation: {error}. Give another template as chat_template, or other data"
            ) from error

    @cached_property
    def arguments_as_text(self) -> bool:
        """True if the template takes a call's arguments as JSON text, not as an object."""
        arguments = {"word": "words"}
        call = ToolCall("call00000", "probe", arguments).message(text=False)
        messages = [{"role": "user", "content": "word"}, {"role": "assistant", "content": "word", "tool_calls": [call]}]
        for tools in ([_PROBE], ()):  # Some templates fail without tools, and some fail on these tools.
            with suppress(TemplateError):
                return str(arguments) in self.write(messages, tools=tools)
        return True

    def refuse_unwritten(self, messages: Sequence[ChatMessage], tools: Tools) -> None:
        """Raises: TemplateError: The first prompt lacks the name of a function."""
        task = messages[: next(index for index, message in enumerate(messages) if message["role"] == "assistant")]
        prompt = self.write(task, prompt=True, tools=tools)
        names = [str(tool["function"]["name"]) for tool in tools]
        missing = [name for name in names if name not in prompt]
        with suppress(TemplateError):  # Some templates fail without tools.
            missing = names if prompt == self.write(task, prompt=True) else missing
        if missing:
            raise TemplateError(
                f"the chat template does not write the function {missing[0]!r} that may be called; give a template that writes tools "
                "as chat_template, or train on text (form=react)"
            )


def _with_defaults(source: str, variables: Mapping[str, Any]) -> str:
    for name in variables:
        if not mentions(source, name):
            raise TemplateError(
                f"chat_template_kwargs gives {name!r}, and the chat template reads nothing of that name; leave it out, or spell it "
                "as the template does"
            )
    # transformers sets `trim_blocks`: the line feed after a block is not written.
    defaults = "".join(
        f"{{% if {name} is not defined %}}{{% set {name} = {value!a} %}}{{% endif %}}\n"
        for name, value in sorted(variables.items())
    )
    return source if source.startswith(defaults) else defaults + source


def mentions(source: str, name: str) -> bool:
    """Return True if a template contains the name as a whole word, not as an attribute."""
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", source) is not None


def _tokenizer_template(tokenizer: Any) -> str:
    template: str | Mapping[str, str] | None = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        if "default" not in template:
            raise TemplateError(
                f"the tokenizer has the chat templates {sorted(template)} and none is called 'default'; "
                "write the one to use to a file and give it as chat_template"
            )
        return template["default"]
    if template is None and not getattr(tokenizer, "eos_token", None):
        raise TemplateError(
            "the tokenizer has neither a chat template nor an end-of-sequence token, so nothing could end a turn; "
            "give a chat_template, or a tokenizer with an eos_token"
        )
    return template if template is not None else REACT_TEMPLATE
