"""A chat template for base models, which have none: plain ReAct text (Thought, Action, Observation).

    <bos>{the task, the first user message}
    Thought: ...
    Action: ...<eos>

    Observation: {every later user message}
    Thought: ...
    Action: ...<eos>

Every assistant turn ends in the tokenizer's end-of-sequence token, mid-conversation too, so that an agent stops after its
action. There is no header before an assistant turn: it begins on a new line, and its own `Thought:` is learned. One line feed,
since tokenizers in GPT-2's manner make one token of two at a prompt's end, and two tokens where a word follows. A system turn stands
before the task. The paper trains base models and prints no template (section 4.1).
"""

REACT_TEMPLATE = """\
{%- if bos_token is defined and bos_token %}{{- bos_token }}{% endif -%}
{%- set seen = namespace(task=false) -%}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- elif message['role'] == 'user' and seen.task -%}
{{- 'Observation: ' + message['content'] -}}
{%- else -%}
{{- message['content'] -}}
{%- if message['role'] == 'user' -%}{%- set seen.task = true -%}{%- endif -%}
{%- endif -%}
{%- if loop.last -%}{%- if add_generation_prompt -%}{{- '\\n' -}}{%- endif -%}
{%- elif loop.nextitem['role'] == 'assistant' -%}{{- '\\n' -}}
{%- else -%}{{- '\\n\\n' -}}
{%- endif -%}
{%- endfor -%}
"""
"""Jinja, as a tokenizer keeps it. Needs an `eos_token`; a `bos_token` is written once, where there is one."""
