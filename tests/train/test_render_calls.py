"""Conversations with tool calls as tokens and labels: every trained turn is one that a model would write after its
prompt, and ends where it would stop.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import tiny
import tool_templates
from hypothesis import given
from hypothesis import settings as limits
from prompted import trained_turns
from samples import accepted, trajectory

from refinesynth.errors import InputError
from refinesynth.testing import valid_drafts
from refinesynth.train.data import read_conversations
from refinesynth.train.data.record_forms import from_trajectory, read_record
from refinesynth.train.labelled_conversation import Conversation, LossOn, Turn, TurnLabel, without_mistakes
from refinesynth.train.render import Renderer, RewritesHistoryError, TemplateError
from refinesynth.train.tokens import Label, Rendered
from refinesynth.trajectory import Draft


def tokenizer(template: str) -> Any:
    if template is tool_templates.GLM:
        return tiny.made((*tool_templates.GLM_TOKENS,), tool_templates.CALL_TAGS, template, eos="<|endoftext|>")
    return tiny.made(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), tool_templates.CALL_TAGS, template, eos="<|im_end|>"
    )


def played() -> Conversation:
    return from_trajectory(trajectory(), "played.jsonl:1", "tools")


def messages_of(conversation: Conversation, *, text: bool = False, apart: bool = False) -> list[dict[str, Any]]:
    """As a server has them, made without the renderer."""
    found: list[dict[str, Any]] = []
    for turn in conversation.turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.content}
        if turn.calls:
            functions = [{"name": one.name, "arguments": arguments_as(one.arguments, text=text)} for one in turn.calls]
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": function}
                for one, function in zip(turn.calls, functions, strict=True)
            ]
            message |= {"reasoning_content": turn.content, "content": ""} if apart else {}
        elif turn.role == "tool":
            message["tool_call_id"] = turn.call_id
        found.append(message)
    return found


def arguments_as(arguments: Mapping[str, Any], *, text: bool) -> Any:
    return json.dumps(dict(arguments), ensure_ascii=False) if text else dict(arguments)


def check(
    examples: list[Rendered], conversation: Conversation, template: str, *, text: bool = False, apart: bool = False
) -> int:
    """How many turns are trained: each behind the tokens of its prompt, and to its end."""
    asked, messages = tokenizer(template), messages_of(conversation, text=text, apart=apart)
    found = trained_turns(examples, conversation, asked, messages, tools=[*conversation.tools])
    for k, ids in found.items():
        assert conversation.turns[k].calls[0].name in asked.decode(ids)
        assert asked.decode(ids).count("<tool_call>") <= 1
    return len(found)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (tool_templates.HERMES, False),
        (tool_templates.TEXT_ARGUMENTS, True),
        (tool_templates.PRINTED_ARGUMENTS, True),
        (tool_templates.GLM, False),
    ],
)
def test_turns_are_trained_behind_their_prompts_to_their_end(template: str, text: bool) -> None:
    conversation = played()
    made = tokenizer(template)
    (example,) = Renderer(made).render(conversation)
    assert check([example], conversation, template, text=text) >= 2
    end = "<|observation|>" if template is tool_templates.GLM else "<|im_end|>"
    for span in example.spans:
        assert made.decode([example.input_ids[span.stop - 1]]) == end
        assert made.decode(example.input_ids[span.start : span.stop]).count(end) == 1
    assert len(example) == example.spans[-1].stop or end == "<|im_end|>"
    labels = [turn.label for turn in conversation.turns if turn.role == "assistant"]
    assert [span.label for span in example.spans] == labels
    wrong = [span for span in example.spans if span.label is TurnLabel.MISTAKE]
    assert wrong
    assert all((example.labels[span.start : span.stop] == Label.MISTAKE).all() for span in wrong)


def test_a_turn_without_an_end_of_its_own_ends_with_the_next_message_s_header_and_not_behind_its_call() -> None:
    conversation = played()
    made = tokenizer(tool_templates.GLM)
    made.add_tokens(["</tool_call>"], special_tokens=True)
    (example,) = Renderer(made).render(conversation)
    assert {made.decode([example.input_ids[span.stop - 1]]) for span in example.spans} == {"<|observation|>"}
    unanswered = conversation.turns[: max(k for k, turn in enumerate(conversation.turns) if turn.calls) + 1]
    (alone,) = Renderer(made).render(Conversation("x", "x", unanswered, "x:1", tools=conversation.tools))
    assert alone.input_ids.tolist() == example.input_ids[: len(alone)].tolist()
    assert made.decode([alone.input_ids[-1]]) == "<|observation|>"


def test_a_header_that_begins_every_message_is_no_end() -> None:
    endless = tool_templates.HERMES.replace("{% endfor %}{{ '<|im_end|>\\n' }}", "{% endfor %}")
    with pytest.raises(TemplateError, match="no end-of-turn token"):
        Renderer(tokenizer(endless)).render(played())


@pytest.mark.long
@given(valid_drafts())
@limits(max_examples=20)
def test_every_trajectory_is_rendered_or_refused_in_words(draft: Draft) -> None:
    conversation = from_trajectory(accepted(draft), "x:1", "tools")
    try:
        examples = Renderer(tokenizer(tool_templates.HERMES)).render(conversation)
    except (TemplateError, RewritesHistoryError):
        return
    check(examples, conversation, tool_templates.HERMES)


def test_thinking_that_is_written_in_the_last_turn_alone_is_refused_or_expanded() -> None:
    conversation, made = played(), tokenizer(tool_templates.THINKING)
    with pytest.raises(RewritesHistoryError, match="--thought-as reasoning"):
        Renderer(made).render(conversation)
    (example,) = Renderer(tokenizer(tool_templates.THINKING), thought_as="reasoning").render(conversation)
    check([example], conversation, tool_templates.THINKING, apart=True)
    expanded = Renderer(tokenizer(tool_templates.THINKING), on_rewrite="expand").render(conversation)
    assert check(expanded, conversation, tool_templates.THINKING) == len(expanded) > 1


def test_a_template_that_does_not_write_the_functions_is_refused() -> None:
    with pytest.raises(TemplateError, match="does not write the function"):
        Renderer(tokenizer(tool_templates.NO_TOOLS)).render(played())


@pytest.mark.parametrize("where", ["call", "function", "observation"])
def test_control_tokens_in_calls_functions_and_observations_leave_a_conversation_out(where: str) -> None:
    conversation, renderer = played(), Renderer(tokenizer(tool_templates.HERMES))
    turns, tools = list(conversation.turns), conversation.tools
    k = next(k for k, turn in enumerate(turns) if turn.role == "tool")
    if where == "observation":
        turns[k] = turns[k]._replace(content="It says <|im_end|>.")
    elif where == "call":
        calls = (turns[k - 1].calls[0]._replace(arguments={"x": "<|im_end|>"}),)
        turns[k - 1] = turns[k - 1]._replace(calls=calls)
    else:
        tools = (*tools, {"type": "function", "function": {"name": "x", "description": "<|im_end|>"}})
    assert renderer.render(Conversation("x", "x", tuple(turns), "x:1", tools=tools)) == []
    assert renderer.render(conversation) != []


def test_without_refinement_a_mistake_goes_with_its_answer() -> None:
    (left,) = read_conversations([[trajectory()]], without_refinement=True, form="tools")
    assert all(turn.label in {None, TurnLabel.CORRECT} for turn in left.turns)
    (example,) = Renderer(tokenizer(tool_templates.HERMES)).render(left)
    assert check([example], left, tool_templates.HERMES) == len(example.spans)


def test_several_calls_are_one_turn_and_each_is_answered() -> None:
    calls = [{"id": f"c{k}", "function": {"name": "look", "arguments": f'{{"at": {k}}}'}} for k in range(2)]
    messages = [
        {"role": "user", "content": "Look twice."},
        {"role": "assistant", "content": None, "tool_calls": calls, "loss": True},
        {"role": "tool", "tool_call_id": "c1", "content": "One."},
        {"role": "tool", "tool_call_id": "c0", "content": "Zero."},
        {"role": "assistant", "content": "Done.", "loss": True},
    ]
    tools: list[Any] = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}]
    read = read_record({"messages": messages, "tools": json.dumps(tools)}, "x:1")
    (example,) = Renderer(tokenizer(tool_templates.HERMES)).render(read)
    assert len(example.spans) == 2
    made = tokenizer(tool_templates.HERMES)
    assert made.decode(example.input_ids[slice(*example.spans[0][:2])]).count('"look"') == 2
    with pytest.raises(InputError, match=r"answers the call 'c9', and open are \['c0', 'c1'\]"):
        read_record({"messages": [*messages[:2], {**messages[2], "tool_call_id": "c9"}, *messages[3:]]}, "x:1")
    with pytest.raises(InputError, match="where one from 'tool' is expected"):
        read_record({"messages": [*messages[:3], messages[4]]}, "x:1")


ARGUMENTS: dict[str, Any] = {
    "city": 'Riga "x"',
    "days": 0,
    "note": "",
    "exact": True,
    "any": None,
    "more": {"deep": [1, False]},
}


def called() -> Conversation:
    """Two turns that call, the first twice, with values that templates like to leave out."""
    calls = [{"id": f"call0000{k}", "function": {"name": "look", "arguments": json.dumps(ARGUMENTS)}} for k in range(3)]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls]
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "So.", "tool_calls": calls[:2]},
        *answers[:2],
        {"role": "assistant", "content": "Once more.", "tool_calls": calls[2:]},
        answers[2],
        {"role": "assistant", "content": "Done."},
    ]
    return read_record({"messages": messages, "tools": [{"name": "look"}]}, "x:1")


@pytest.mark.parametrize("name", tool_templates.ENCODINGS)
def test_a_call_may_be_written_in_any_way(name: str) -> None:
    made = tokenizer(tool_templates.with_call(tool_templates.ENCODINGS[name]))
    (example,) = Renderer(made).render(called())
    said = [made.decode(example.input_ids[slice(*span[:2])]) for span in example.spans]
    assert [text.count("look") for text in said] == [2, 1, 0]
    assert [text.count("deep") for text in said] == [2, 1, 0]


@pytest.mark.parametrize("name", tool_templates.LEAVING_OUT)
def test_a_template_that_leaves_out_part_of_a_call_is_refused_with_a_way_out(name: str) -> None:
    made = tokenizer(tool_templates.with_call(tool_templates.LEAVING_OUT[name]))
    with pytest.raises(TemplateError, match=r"does not write .* of a call.* --chat-template a file .*form=react"):
        Renderer(made).render(called())


def test_a_template_of_one_call_a_turn_is_refused_where_a_turn_has_several() -> None:
    """As gpt-oss's, which writes the first and says nothing of the others."""
    made = tokenizer(tool_templates.with_call(tool_templates.LEAVING_OUT["later calls"]))
    conversation = called()
    with pytest.raises(TemplateError, match="does not write 'look' of a call"):
        Renderer(made).render(conversation)
    turns = (conversation.turns[0], *conversation.turns[4:])
    (example,) = Renderer(made).render(replace(conversation, turns=turns))
    assert len(example.spans) == 2


def test_a_template_that_cannot_be_written_without_tools_is_trained_through() -> None:
    made = tokenizer(tool_templates.PHI)
    (example,) = Renderer(made).render(called())
    said = [made.decode(example.input_ids[span.start : span.stop]) for span in example.spans]
    assert [text.endswith("<|im_end|>") for text in said] == [True, True, False]
    assert all(text.count("<|im_end|>") == 1 and text.endswith("|>") for text in said)


def test_a_template_without_room_for_a_thought_beside_a_call_is_refused_with_a_way_out() -> None:
    conversation, silent = played(), tokenizer(tool_templates.SILENT)
    for on_rewrite in ("refuse", "expand"):
        with pytest.raises(RewritesHistoryError, match="--thought-as omit"):
            Renderer(silent, on_rewrite=on_rewrite).render(conversation)
    (example,) = Renderer(silent, thought_as="omit").render(conversation)
    assert len(example.spans) == sum(turn.role == "assistant" for turn in conversation.turns)
    for span, turn in zip(example.spans, (turn for turn in conversation.turns if turn.calls), strict=True):
        said = silent.decode(example.input_ids[span.start : span.stop])
        assert turn.calls[0].name in said
        assert turn.content not in said


def test_text_without_an_end_of_turn_is_trained_to_the_header_of_the_next_message() -> None:
    conversation, made = from_trajectory(trajectory(), "played.jsonl:1"), tokenizer(tool_templates.GLM)
    for one in (conversation, replace(conversation, turns=conversation.turns[:2])):
        (example,) = Renderer(made).render(one)
        assert {made.decode([example.input_ids[span.stop - 1]]) for span in example.spans} == {"<|user|>"}
    thinks = tool_templates.GLM.replace(
        "{{ '<|assistant|>\\n' + m.content }}",
        "{{ '<|assistant|>\\n' }}{% if loop.last %}{{ '<think>' ~ m.reasoning_content ~ '</think>' }}{% endif %}{{ m.content }}",
    )
    assert thinks != tool_templates.GLM
    turns = (Turn("user", "Go.", None), Turn("assistant", "Gone.", TurnLabel.CORRECT, thinking="So."))
    made = tiny.made(tool_templates.GLM_TOKENS, tool_templates.CALL_TAGS, thinks, eos="<|endoftext|>")
    (example,) = Renderer(made, thought_as="reasoning").render(Conversation("x", "x", turns, "x:1"))
    said = made.decode(example.input_ids[slice(*example.spans[0][:2])])
    assert said == "<think>So.</think>Gone.<|user|>"


def mixed(*wrong: bool) -> Conversation:
    """One message of several calls, some of them wrong, and one after it."""
    calls = [
        {"id": f"call0000{k}", "function": {"name": "look", "arguments": {"at": f"place {k}", "deep": [k, "x"]}}}
        for k in range(len(wrong) + 1)
    ]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls]
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "Here and there.", "tool_calls": calls[:-1], "loss": not any(wrong)},
        *answers[:-1],
        {"role": "assistant", "content": "Once more.", "tool_calls": calls[-1:], "loss": True},
    ]
    labels = ["+".join("mistake" if one else "player" for one in wrong), "player"]
    record = {"id": "x", "messages": messages, "tools": [{"name": "look"}], "labels": labels}
    return read_record(record, "x:1")


def test_a_message_with_a_mistake_among_its_calls_is_masked_whole() -> None:
    made = tokenizer(tool_templates.HERMES)
    (example,) = Renderer(made).render(mixed(True, False))
    first, second = example.spans
    assert (example.labels[slice(*first[:2])] == Label.MISTAKE).all()
    assert (example.labels[slice(*second[:2])] == Label.TRAINED).all()
    assert [span.label for span in example.spans] == [TurnLabel.MISTAKE, TurnLabel.REFINEMENT]
    every = Renderer(made, loss_on=LossOn.ALL_TURNS).render(mixed(True, False))[0]
    assert (every.labels[slice(*first[:2])] == Label.TRAINED).all()


def test_without_refinement_the_right_calls_of_a_message_stay() -> None:
    kept = without_mistakes(mixed(True, False))
    assert kept is not None
    assert [(turn.role, [call.id for call in turn.calls], turn.call_id) for turn in kept.turns] == [
        ("user", [], ""),
        ("assistant", ["call00001"], ""),
        ("tool", [], "call00001"),
        ("assistant", ["call00002"], ""),
    ]
