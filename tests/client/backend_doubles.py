"""Doubles: a completion function that says what a test tells it to, and waits that take no time."""

from collections import deque
from typing import Any

from chat_server import completion

from refinesynth.backends import Backend
from refinesynth.client.budget.price_table import free
from refinesynth.client.budget.tracker import Price
from refinesynth.client.model import BackendModel


class Scripted:
    """Answers with what it was given, in order, and then with `completion()`; raises what is an exception."""

    def __init__(self, *answers: object) -> None:
        self.answers = deque(answers)
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, **request: object) -> object:
        self.requests.append(dict(request))
        answer = self.answers.popleft() if self.answers else completion()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Refused(Exception):
    """Shaped as litellm's errors are."""

    def __init__(self, status: int, text: str = "no") -> None:
        super().__init__(text)
        self.status_code = status


class Waits(list[float]):
    """Stands in for `anyio.sleep`: keeps how long it was asked to wait, and does not."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}


def answering(*answers: object, price: Price = free) -> tuple[BackendModel, Scripted]:
    call = Scripted(*answers)
    return BackendModel(Backend(model="rehearsal"), call=call, price=price, sleep=Waits()), call
