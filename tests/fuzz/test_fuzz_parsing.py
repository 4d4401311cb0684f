"""What a model writes is read, or refused in words that it can be told; whatever was read can be judged, kept and
shown."""

from functools import cache
from typing import cast

import orjson
from fuzzing import EXAMPLES, damaged, json_values, only, thoroughly
from hypothesis import given
from hypothesis import strategies as st

from refinesynth import chat, rules
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.testing import drafts, texts, valid_drafts, valid_scripts
from refinesynth.text.formatting import printable
from refinesynth.text.json_reader import read_json, write_json
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script

valid_texts = valid_scripts().map(lambda script: write_json(script.to_paper()).decode())
turn_lists = valid_drafts().map(
    lambda draft: write_json({"turns": [turn.model_dump(mode="json") for turn in draft.turns]}).decode()
)


@cache
def rehearsed() -> tuple[str, ...]:
    """Answers as a model's, of the roles that write scripts and turns."""
    rehearsal = Rehearsal(faults=Faults.none())
    asked = [
        [{"role": "user", "content": f"Write a script.\n{block(persona, 'persona')}"}]
        for persona in ("a nurse", "a clerk in an office", "a chemist", "a storekeeper", "a programmer")
    ]
    return tuple(rehearsal.answer("any", messages, {})["choices"][0]["message"]["content"] for messages in asked)


answers = st.deferred(lambda: st.sampled_from(rehearsed())) | valid_texts | turn_lists
anything = damaged(answers) | texts() | json_values(texts()).map(lambda value: write_json(value).decode())


def judged_and_kept(draft: Draft) -> None:
    """Whatever a draft holds: rules say what they find, it is written on one line, read again and shown."""
    verdict = rules.verify(draft, rules.strict() & rules.agentrefine() & rules.script())
    assert all(violation.message.strip() for violation in verdict.violations)
    line = draft.to_json()
    assert len(line.decode().splitlines()) == 1
    again = Draft.from_json(line)
    assert rules.verify(again, rules.strict()).accepted == rules.verify(draft, rules.strict()).accepted
    printable(line.decode())
    turns = [turn for turn in draft.turns if isinstance(turn, PlayerTurn | DungeonMasterTurn)]
    for message in chat.render_turns(draft.script, turns):
        printable(message.content)


@thoroughly
@given(anything)
def test_a_script_is_read_or_refused(text: str) -> None:
    script = only(ValueError)(lambda: Script.from_llm(read_json(text)))
    if isinstance(script, Script):
        judged_and_kept(Draft(script=script))


@thoroughly
@given(valid_drafts(), anything, st.integers(0, 40))
def test_a_draft_is_read_whatever_the_text(draft: Draft, text: str, kept: int) -> None:
    prefix = cast("tuple[PlayerTurn | DungeonMasterTurn, ...]", draft.turns[:kept])
    judged_and_kept(Draft.from_text(draft.script, text, prefix=prefix))


@thoroughly
@given(drafts())
def test_any_draft_is_judged_and_kept(draft: Draft) -> None:
    judged_and_kept(draft)


turns_as_text = st.builds(PlayerTurn, thought=texts(surrogates=False), action=texts(surrogates=False)).map(
    chat.render_player
)


@thoroughly
@given(
    damaged(turns_as_text)
    | texts()
    | st.lists(st.sampled_from(("Thought:", "Action:", "\n", " ", "**", "a"))).map("".join)
)
def test_a_players_text_is_a_turn_or_refused(text: str) -> None:
    turn = only(ValueError)(lambda: chat.parse_player(text))
    if isinstance(turn, PlayerTurn):
        assert turn.action.strip()
        assert chat.parse_player(f"Thought: so\nAction: {turn.action}").action == turn.action


@thoroughly
@given(damaged(answers) | st.text(st.sampled_from('{}[]",:\\ntrue1e.-`\n \ud800')))
def test_json_is_read_or_refused_and_written_again(text: str) -> None:
    value = only(ValueError)(lambda: read_json(text))
    if value is not None:
        assert read_json(write_json(value).decode()) == orjson.loads(write_json(value))


def test_there_are_examples() -> None:
    assert EXAMPLES > 0
    assert all(isinstance(Script.from_llm(read_json(text)), Script) for text in rehearsed())
