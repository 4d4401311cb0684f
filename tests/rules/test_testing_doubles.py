"""The completion function that answers by script, and the strategies' own promises."""

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given

from refinesynth import testing
from refinesynth.errors import RefinesynthError
from refinesynth.trajectory import Draft


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
