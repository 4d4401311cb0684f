"""Prompts of local models that call functions: those of training, for any chat template; and their answers read back."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")
pytest.importorskip("transformers", reason="needs the extra train")
sys.path.append(str(Path(__file__).resolve().parents[1] / "train"))

import tiny
import tool_templates
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ContentReasoning
from samples import accepted
from test_tool_form import chat, start_of

from refinesynth.actions.calls import Call, text_of
from refinesynth.errors import InputError
from refinesynth.evaluate.chat_form import Prompter, TrainedAs, read_message
from refinesynth.testing import valid_drafts
from refinesynth.train.data.record_forms import from_trajectory
from refinesynth.train.render import Renderer
from refinesynth.trajectory import Draft

pytestmark = [pytest.mark.train]


def tokenizer(template: str) -> Any:
    if template is tool_templates.GLM:
        return tiny.made((*tool_templates.GLM_TOKENS,), tool_templates.CALL_TAGS, template, eos="<|endoftext|>")
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return tiny.made(tokens, (*tool_templates.CALL_TAGS, "<think>", "</think>"), template, eos="<|im_end|>")


def reasoning(message: ChatMessageAssistant) -> str:
    parts = [] if isinstance(message.content, str) else message.content
    return "".join(one.reasoning for one in parts if isinstance(one, ContentReasoning))


@pytest.mark.parametrize(
    ("template", "thought_as"),
    [
        (tool_templates.HERMES, "content"),
        (tool_templates.HERMES, "omit"),
        (tool_templates.GLM, "content"),
        (tool_templates.THINKING, "reasoning"),
    ],
)
@given(draft=valid_drafts())
def test_prompts_are_those_of_training_and_its_turns_are_read_back(template: str, thought_as: Any, draft: Draft):
    """Behind each turn of a play: what the model is given is the text before the turn in training, to the token."""
    made, played = tokenizer(template), accepted(draft)
    form, messages = chat(start_of(draft.script, played.turns))
    prompter = Prompter(made, TrainedAs(form="tools", thought_as=thought_as))
    conversation = from_trajectory(played, "played.jsonl:1", "tools")
    examples = Renderer(made, thought_as=thought_as, on_rewrite="expand").render(conversation)
    found = {
        made.decode(example.input_ids[: span.start]): (example, span) for example in examples for span in example.spans
    }
    acted = [at for at, message in enumerate(messages) if message.role == "assistant"]
    prompts = {prompter.prompt(messages[:at], form.tools): messages[at] for at in acted}
    assert found.keys() <= prompts.keys()
    for prompt, (example, span) in found.items():
        message, turn = prompts[prompt], example.input_ids[span.start : span.stop]
        read = read_message(made.decode(turn, skip_special_tokens=True), form.tools)
        assert said(read, draft) == said(message, draft)
        thought = {"content": read.text, "reasoning": reasoning(read), "omit": message.text.strip()}[thought_as]
        assert thought == message.text.strip()


def said(message: ChatMessage, draft: Draft) -> list[str]:
    assert isinstance(message, ChatMessageAssistant)
    return [text_of(draft.script, Call(one.function, one.arguments)).strip() for one in message.tool_calls or ()]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (tool_templates.NO_TOOLS, "writes no tools"),
        (tool_templates.PRINTED_ARGUMENTS, "writes calls that cannot be read"),
        (tool_templates.SILENT.replace("tool_calls or []", "nothing or []"), "writes calls that cannot be read"),
    ],
)
def test_a_template_whose_calls_cannot_be_read_is_refused(template: str, message: str):
    with pytest.raises(InputError, match=f"{message}.*give --form react, or serve the model"):
        Prompter(tokenizer(template), TrainedAs())


@given(draft=valid_drafts())
def test_whatever_a_model_writes_is_a_message_that_it_can_be_shown(draft: Draft):
    form, messages = chat(start_of(draft.script, ()))
    prompter = Prompter(tokenizer(tool_templates.HERMES), TrainedAs())
    for text, names in (
        ("", []),
        ("I think.", []),
        ('<tool_call>\n{"name": "fly", "arguments": {"to": "home"}}\n</tool_call>', ["fly"]),
        (
            'I go.\n<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>\n<tool_call>{"name": "x", "arguments": {}}',
            ["fly", "x"],
        ),
        ('<tool_call>\n{"name": "fly", "arguments": {"to', []),
        ('<tool_call>\n{"name": "fly", "arguments": [1]}\n</tool_call>', []),
        ("<think>hm</think>\nI go. \ud800", []),
    ):
        read = read_message(text, form.tools)
        assert [one.function for one in read.tool_calls or ()] == names
        assert prompter.prompt([*messages, read, *form.answers(read, "so")], form.tools)


def test_the_settings_of_a_training_are_read_from_its_folder(tmp_path: Path):
    assert TrainedAs.of(str(tmp_path)) == TrainedAs.of("gpt-4o") == TrainedAs()
    (tmp_path / "train.yaml").write_text("form: tools\nthought_as: omit\nepochs: 3\n")
    assert TrainedAs.of(str(tmp_path)) == TrainedAs(form="tools", thought_as="omit")
    for counted, form in (
        ('"parallel_tasks": 3, ', "parallel_tools"),
        ('"parallel_tasks": 2, ', "tools"),
        ("", "tools"),
    ):
        (tmp_path / "plan.json").write_text(f'{{"sizes": {{"counts": {{{counted}"conversations": 4}}}}}}')
        assert TrainedAs.of(str(tmp_path)).form == form
    (tmp_path / "plan.json").write_text("[1]")
    assert TrainedAs.of(str(tmp_path)).form == "tools"
    (tmp_path / "train.yaml").write_text("form: sung\n")
    with pytest.raises(InputError, match=r"train\.yaml' is of another version: .*give --form react"):
        TrainedAs.of(str(tmp_path))
