"""Chat templates of thinking models, in the manner of each family: as small as they can be and still write what it
writes.

What differs between them is where a turn has its thinking, of which turns it is kept, and what a prompt opens.
"""

_LAST = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}"
)
_SPLIT = (
    "{% set said = m.content %}{% set why = '' %}{% if m.reasoning_content is string %}{% set why = m.reasoning_content %}"
    "{% elif '</think>' in said %}{% set why = said.split('</think>')[0].split('<think>')[-1].strip('\\n') %}"
    "{% set said = said.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
)
_EMPTY = "{{ '<think>\\n\\n</think>\\n\\n' }}"
_OPENED = "{{ '<think>\\n' }}"
_THOUGHT = "{{ '<think>\\n' + why.strip('\\n') + '\\n</think>\\n\\n' + said.lstrip('\\n') }}"


def _switched(off: str, on: str = "") -> str:
    return f"{{% if enable_thinking is defined and enable_thinking is false %}}{off}{{% else %}}{on}{{% endif %}}"


def _chatml(turn: str, prompt: str) -> str:
    return (
        f"{_LAST}{{% for m in messages %}}{{{{ '<|im_start|>' + m.role + '\\n' }}}}"
        f"{{% if m.role == 'assistant' %}}{turn}{{% else %}}{{{{ m.content }}}}{{% endif %}}{{{{ '<|im_end|>\\n' }}}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{prompt}{{% endif %}}"
    )


def _kept(condition: str) -> str:
    return f"{_SPLIT}{{% if {condition} %}}{_THOUGHT}{{% else %}}{{{{ said }}}}{{% endif %}}"


_BEHIND_LAST = "loop.index0 > ns.last"

QWEN3 = _chatml(_kept(f"{_BEHIND_LAST} and (loop.last or why)"), _switched(_EMPTY))
QWEN3_THINKING = _chatml(_kept(_BEHIND_LAST), _OPENED)
QWEN3_5 = _chatml(_kept(_BEHIND_LAST), _switched(_EMPTY, _OPENED))
QWEN3_6 = _chatml(
    _kept(f"(preserve_thinking is defined and preserve_thinking is true) or {_BEHIND_LAST}"), _switched(_EMPTY, _OPENED)
)
AXOLOTL_QWEN3 = _chatml(_kept(f"{_BEHIND_LAST} and (loop.last or why)"), _switched(_EMPTY, "{{ '<think>\\n\\n' }}"))
NEMOTRON_3 = _chatml(
    "{% if m.reasoning_content is string %}{% set c = '<think>\\n' ~ m.reasoning_content ~ '\\n</think>\\n' ~ m.content %}"
    "{% elif '</think>' in m.content %}{% set c = m.content %}{% else %}{% set c = '<think></think>' ~ m.content %}{% endif %}"
    "{% if truncate_history_thinking | default(true) and loop.index0 < ns.last %}"
    "{{ '<think></think>' ~ c.split('</think>')[-1] | trim }}{% else %}{{ c | trim }}{% endif %}",
    _switched("{{ '<think></think>' }}", _OPENED),
)

_DEEPSEEK = (
    "{{{{ bos_token }}}}{{% for m in messages %}}{{% if m.role == 'system' %}}{{{{ m.content }}}}"
    "{{% elif m.role == 'user' %}}{{{{ '<\uff5cUser\uff5c>' + m.content }}}}{{% else %}}{{% set c = m.content %}}"
    "{{% if '</think>' in c %}}{{% set c = c.split('</think>')[-1] %}}{{% endif %}}"
    "{{{{ '<\uff5cAssistant\uff5c>{before}' + c + eos_token }}}}{{% endif %}}{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '<\uff5cAssistant\uff5c>' }}}}{prompt}{{% endif %}}"
)
DEEPSEEK_R1 = _DEEPSEEK.format(before="", prompt=_OPENED)
DEEPSEEK_V3 = _DEEPSEEK.format(before="", prompt="")
DEEPSEEK_V3_1 = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}" + _DEEPSEEK.format(
    before="</think>", prompt="{% if thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}"
)

GEMMA_4 = (
    "{{ bos_token }}{% set on = enable_thinking is defined and enable_thinking %}"
    "{% if on or messages[0].role == 'system' %}{{ '<|turn>system\\n' }}{% if on %}{{ '<|think|>' }}{% endif %}"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}{{ '<turn|>\\n' }}{% endif %}"
    "{% for m in messages if m.role != 'system' %}{% set who = 'model' if m.role == 'assistant' else m.role %}"
    "{% set c = m.content.split('<channel|>')[-1] if who == 'model' else m.content %}"
    "{{ '<|turn>' + who + '\\n' + c | trim + '<turn|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% if not on %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}{% endif %}"
)
