"""What was paid for is remembered, entered once, and not asked for again; money is put aside before and settled
after."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from backend_doubles import USAGE, answering
from chat_server import completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from samples import SHED, Memory, paid

from refinesynth.backends import Role
from refinesynth.chat import render_task
from refinesynth.client.budget.tracker import BudgetReservation, BudgetTracker
from refinesynth.client.completion_parsing import ReadCompletion, read_completion
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session, digest_of
from refinesynth.errors import RunStopped, StorageError
from refinesynth.journal.journal_values import PaidCompletion


class Counted(BudgetTracker):
    """A tracker that is empty after `allowed` holds."""

    def __init__(self, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed

    async def reserve(self, **asked: Any) -> BudgetReservation:
        if not self.allowed:
            raise RunStopped("the budget is spent.")
        self.allowed -= 1
        return await super().reserve(**asked)


async def say(session: Session, model: BackendModel, text: str, role: Role = Role.PLAYER) -> str:
    return (await Agent(session.model(role, model)).run(text)).output


async def test_what_was_paid_for_is_not_asked_for_again_and_counts_once() -> None:
    memory = Memory()
    model, call = answering(completion("one", usage=USAGE), completion("two", usage=USAGE), price=lambda _: 0.5)
    first = Session("e1", seed=7, memory=memory)
    said = [await say(first, model, text) for text in ("a", "b")]
    again = Session("e1", seed=7, memory=memory)
    assert [await say(again, model, text) for text in ("a", "b")] == said == ["one", "two"]
    assert len(call.requests) == 2
    assert again.spent == first.spent
    assert again.spent.cost_usd == 1.0


async def test_another_question_another_role_or_a_later_step_is_asked() -> None:
    memory = Memory()
    model, call = answering(*(completion(str(number)) for number in range(9)))
    assert await say(Session("e1", seed=7, memory=memory), model, "a") == "0"
    assert await say(Session("e1", seed=7, memory=memory), model, "b") == "1"
    assert await say(Session("e1", seed=7, memory=memory), model, "a", Role.JUDGE) == "2"
    session = Session("e1", seed=7, memory=memory)
    assert [await say(session, model, "a"), await say(session, model, "a")] == ["0", "3"]
    assert len(call.requests) == 4


async def test_a_completion_is_kept_although_its_episode_is_cancelled() -> None:
    memory = Memory()
    model, _ = answering(completion("one", usage=USAGE))
    with anyio.CancelScope() as scope:

        class Cancelling(Memory):
            async def keep(self, *paid: PaidCompletion) -> None:
                scope.cancel()
                await memory.keep(*paid)

        await say(Session("e1", seed=7, memory=Cancelling()), model, "a")
    assert len(memory.kept) == 1


async def test_what_is_kept_says_who_asked_when_and_for_how_much() -> None:
    memory = Memory()
    model, _ = answering(completion("one", usage=USAGE), price=lambda _: 0.5)
    session = Session("000003-ab", seed=7, index=3, memory=memory)
    session.attempt = 2
    await say(session, model, "a")
    (one,) = memory.kept.values()
    assert (one.episode, one.index, one.attempt, one.role, one.step) == ("000003-ab", 3, 2, "player", 0)
    assert (one.input_tokens, one.cached_tokens, one.output_tokens, one.cost_usd) == (10, 4, 2, 0.5)
    assert ReadCompletion.from_paid(one).text == "one"


def test_a_damaged_answer_is_said() -> None:
    one = paid(episode="e1", answer=b'{"text": [')
    with pytest.raises(StorageError, match="answer 0 of player in episode e1 is damaged"):
        ReadCompletion.from_paid(one)


async def test_nothing_is_asked_for_without_money() -> None:
    model, call = answering()
    session = Session("e1", seed=7, tracker=Counted(allowed=1))
    await say(session, model, "a")
    with pytest.raises(RunStopped, match="budget"):
        await say(session, model, "b")
    assert len(call.requests) == 1


async def test_what_is_remembered_needs_no_money() -> None:
    memory = Memory()
    model, call = answering(completion(usage=USAGE))
    await say(Session("e1", seed=7, memory=memory), model, "a")
    await say(Session("e1", seed=7, memory=memory, tracker=Counted(allowed=0)), model, "a")
    assert len(call.requests) == 1


_texts = st.lists(st.text(st.characters(exclude_categories=[])), max_size=4)


@given(_texts, _texts)
def test_digests_tell_conversations_apart(one: list[str], other: list[str]) -> None:
    same = digest_of(_chat(one), ModelRequestParameters()) == digest_of(_chat(other), ModelRequestParameters())
    assert same == (one == other)


def test_a_digest_is_the_same_in_every_version() -> None:
    """Or a run that an older version began would be paid for again."""
    digest = digest_of(_chat(["Où est la clé ? 🗝", "\ud800 là"]), ModelRequestParameters())
    assert digest.hex() == "7fe9d6e9e2f37afe2e4601ce12d73077"
    task = render_task(SHED)
    assert digest_of(_chat([task]), ModelRequestParameters()).hex() == "f6efda45dae47cd76d7f75b21af53ec3"


def _chat(texts: list[str]) -> list[ModelMessage]:
    kinds: tuple[Callable[[str], ModelMessage], ...] = (
        lambda text: ModelRequest(parts=[UserPromptPart(text)]),
        lambda text: ModelResponse(parts=[TextPart(text)]),
    )
    return [kinds[at % 2](text) for at, text in enumerate(texts)]


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=2), st.sampled_from([None, "stop"]))
def test_an_answer_is_kept_as_it_was(text: str, thinking: str, calls: list[tuple[str, str]], reason: str) -> None:
    tool_calls = [{"id": "c", "function": {"name": name, "arguments": args}} for name, args in calls]
    message = {"content": text, "reasoning_content": thinking, "tool_calls": tool_calls}
    answer = read_completion({"choices": [{"message": message, "finish_reason": reason}], "usage": USAGE})
    usage = answer.usage
    tokens = {"input_tokens": usage.input_tokens, "cached_tokens": usage.cache_read_tokens, "cache_write_tokens": 0}
    one = paid(answer=answer.to_json(), output_tokens=usage.output_tokens, **tokens)
    assert ReadCompletion.from_paid(one) == answer
