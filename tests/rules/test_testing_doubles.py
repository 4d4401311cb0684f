"""The completion function that answers by script, and the strategies' own promises."""

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from refinesynth import testing
from refinesynth.errors import RefinesynthError
from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn


async def test_answers_come_in_order_and_requests_are_kept() -> None:
    call = testing.ScriptedCompletion(
        "one", {"content": None, "tool_calls": [{"id": "t"}]}, TimeoutError("slow"), {"choices": []}
    )

    first = await call(model="m", messages=[{"role": "user", "content": "hello"}])
    assert first["choices"][0]["message"] == {"role": "assistant", "content": "one"}
    assert first["choices"][0]["finish_reason"] == "stop"
    assert first["model"] == "m"
    assert first["usage"]["total_tokens"] == first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    second = await call(model="m", messages=[])
    assert second["choices"][0]["finish_reason"] == "tool_calls"
    with pytest.raises(TimeoutError, match="slow"):
        await call(messages=[])
    assert call.left == 1
    assert await call(messages=[]) == {"choices": []}
    assert call.left == 0
    assert [len(request) for request in call.requests] == [2, 2, 1, 1]


async def test_running_out_of_answers_is_told() -> None:
    call = testing.ScriptedCompletion()
    with pytest.raises(RefinesynthError, match="answer 1, but only 0"):
        await call(messages=[])


@given(testing.drafts(surrogates=False) | testing.valid_drafts())
def test_drafts_without_surrogates_survive_json(draft: Draft) -> None:
    assert Draft.from_json(draft.to_json()).turns == draft.turns


def is_empty(draft: Draft) -> bool:
    return not draft.turns


def is_malformed(draft: Draft) -> bool:
    return any(isinstance(turn, MalformedTurn) for turn in draft.turns)


def is_unread(draft: Draft) -> bool:
    return draft.text_error is not None


def is_a_part(draft: Draft) -> bool:
    return len(draft.turns) > 3 and not draft.finished


@pytest.mark.parametrize("wanted", [is_empty, is_malformed, is_unread, is_a_part])
def test_drafts_are_of_all_kinds(wanted: Callable[[Draft], bool]) -> None:
    assert wanted(find(testing.drafts(), wanted, settings=settings(phases=[Phase.generate], max_examples=2_000)))


@given(st.data())
def test_corruptions_are_of_the_names_asked_for(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(testing.CORRUPTIONS)))
    corruption = data.draw(testing.corruptions(name))
    assert corruption.name == name
    assert corruption.rule == testing.CORRUPTIONS[name]


def test_an_unreadable_text_may_break_off_after_any_turn() -> None:
    def is_whole(one: testing.Corruption) -> bool:
        last = one.draft.turns[-1:]
        return any(isinstance(turn, DungeonMasterTurn) and "Task Succeed" in turn.observation for turn in last)

    of_any = settings(phases=[Phase.generate], max_examples=2_000)
    assert find(testing.corruptions("unreadable text"), is_whole, settings=of_any).rule == "ReadableText"


@pytest.mark.process
def test_without_hypothesis_the_import_says_what_to_install() -> None:
    code = """
        import sys
        sys.modules["hypothesis"] = None
        try:
            import refinesynth.testing
        except ImportError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "pip install refinesynth[testing]" in done.stdout
