"""Chat templates that write tools and calls, in the manner of each family: as small as they can be.

What differs is how a call is written (an object, text, an argument at a time), whether a turn has an end of its own, and
whether what is said beside a call is kept.
"""

_TOOLS = "{% if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
_JSON = "{{ '<tool_call>\\n' }}{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}{{ '\\n</tool_call>' }}"


def _chatml(said: str, prompt: str = "", call: str = _JSON) -> str:
    return (
        f"{_TOOLS}{{% for m in messages %}}{{% if m.role == 'tool' %}}"
        "{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}"
        "{% elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
        f"{said}{{% for c in m.tool_calls or [] %}}{{{{ '\\n' }}}}{call}{{% endfor %}}{{{{ '<|im_end|>\\n' }}}}"
        "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
        f"{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{prompt}{{% endif %}}"
    )


HERMES = _chatml("{{ m.content }}")
"""Qwen2.5, Qwen3-Instruct-2507 and Hermes."""
TEXT_ARGUMENTS = _chatml("{{ m.content }}", call="{{ c.function.name + '(' + c.function.arguments + ')' }}")
PRINTED_ARGUMENTS = _chatml("{{ m.content }}", call="{{ c.function.name ~ ' ' ~ c.function.arguments }}")
"""Writes an object as Python prints it, so wants text."""
SILENT = _chatml("{% if not m.tool_calls %}{{ m.content }}{% endif %}")
"""Leaves out what is said beside a call."""
THINKING = _chatml(
    "{% if loop.last or m.reasoning_content %}{{ '<think>\\n' ~ (m.reasoning_content or '') ~ '\\n</think>\\n' }}{% endif %}{{ m.content }}"
)
"""Qwen3: an empty block of thinking in the last turn alone."""
NO_TOOLS = HERMES.removeprefix(_TOOLS)

GLM = (
    "{{ '[gMASK]<sop>' }}{% if tools %}{{ '<|system|>\\n' }}{% for t in tools %}{{ t | tojson }}{{ '\\n' }}{% endfor %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\\n' + m.content }}"
    "{% elif m.role == 'tool' %}{{ '<|observation|>\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% else %}{{ '<|assistant|>\\n' + m.content }}{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>' + c.function.name + '\\n' }}"
    "{% for k, v in c.function.arguments.items() %}{{ '<arg_key>' ~ k ~ '</arg_key>\\n<arg_value>' ~ v ~ '</arg_value>\\n' }}{% endfor %}"
    "{{ '</tool_call>' }}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""GLM-4.5: a turn has no end of its own, the next message's header is what a model stops with."""
GLM_TOKENS = ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
CALL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_EACH = "{% for k, v in c.function.arguments.items() %}"
ENCODINGS = {
    "JSON": _JSON,
    "as Python calls": "{{ c.function.name }}("
    + _EACH
    + "{{ k ~ '=' }}{{ v if v is mapping else v | tojson }}, {% endfor %})",
    "XML parameters": "<function={{ c.function.name }}>"
    + _EACH
    + "<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n</parameter>{% endfor %}</function>",
    "between marks": "<begin>function<sep>{{ c.function.name }}\n```json\n{{ c.function.arguments | tojson }}\n```<end>",
    "text in text": "{{ {'name': c.function.name, 'arguments': c.function.arguments | tojson} | tojson }}",
}
"""Ways to write a whole call."""
LEAVING_OUT = {
    "calls": "",
    "names": "{{ c.id }}({{ c.function.arguments | tojson }})",
    "arguments": "{{ c.function.name }}",
    "values": "{{ c.function.name }}({{ c.function.arguments | list }})",
    "keys": "{{ c.function.name }}({{ c.function.arguments.values() | list | tojson }})",
    "what is empty": "{{ c.function.name }}("
    + _EACH
    + "{% if v %}{{ k ~ '=' }}{{ v | tojson }}{% endif %}{% endfor %})",
    "null": "{{ c.function.name }}("
    + _EACH
    + "{% if v is not none %}{{ k ~ '=' }}{{ v | tojson }}{% endif %}{% endfor %})",
    "truth values": "{{ c.function.name }}("
    + _EACH
    + "{{ k ~ '=' }}{% if v is not boolean %}{{ v | tojson }}{% endif %}{% endfor %})",
    "what is nested": "{{ c.function.name }}("
    + _EACH
    + "{{ k ~ '=' }}{{ '...' if v is mapping else v | tojson }}{% endfor %})",
    "later calls": "{% if loop.first %}" + _JSON + "{% endif %}",
    "calls of later turns": "{% if ns.first %}" + _JSON + "{% endif %}",
}
"""Ways to leave something of a call out."""


def with_call(call: str) -> str:
    """A template that writes a call so."""
    first = "{% set ns = namespace(first=true) %}"
    return first + _chatml("{{ m.content }}", call=call).replace(
        "{{ '<|im_end|>\\n' }}{% else %}", "{% set ns.first = false %}{{ '<|im_end|>\\n' }}{% else %}"
    )


PHI = (
    "{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t.function | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}"
    + with_call(_JSON).replace(_TOOLS, "")
    + "{% if not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif %}"
)
"""Phi-4-mini: cannot be written without tools, and ends a conversation with one more token."""
