"""What a server is made to spoil in the tests of hostile answers is what it is called."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest
from spoiling import HUGE_BYTES, SPOILING, spoils
from tiny_backend import BODY, URL, tiny

from refinesynth.serve import create_app, running

pytestmark = pytest.mark.process


@contextmanager
def served(name: str, *, seed: int = 0, met: Counter[str] | None = None) -> Generator[str]:
    app = create_app(tiny)
    found = spoils(app, {name: 1.0}, seed=seed)
    with running(app) as address:
        yield address
    if met is not None:
        met.update(found)


def answers(name: str, *, count: int = 40, seed: int = 0) -> list[httpx.Response]:
    """What that many requests for text and for JSON get."""
    asked = (BODY, {**BODY, "response_format": {"type": "json_object"}})
    with served(name, seed=seed) as address, httpx.Client() as client:
        return [client.post(f"{address}{URL}", json=asked[number % 2]) for number in range(count)]


@pytest.mark.parametrize("name", sorted(SPOILING - {"huge"}))
def test_what_is_spoilt_follows_from_the_seed_and_the_number_of_the_request(name: str) -> None:
    first = [answer.content for answer in answers(name, count=12)]
    assert [answer.content for answer in answers(name, count=12)] == first
    assert [answer.content for answer in answers(name, count=12, seed=1)] != first
    assert len(set(first)) > 1


def test_a_huge_answer_is_one_that_json_readers_take() -> None:
    received = 0
    with served("huge") as address, httpx.stream("POST", f"{address}{URL}", json=BODY) as answer:
        for piece in answer.iter_raw():
            start = piece if not received else b""
            received += len(piece)
            assert not start or start.startswith(b'{"id":"chatcmpl-tiny"')
    assert received > HUGE_BYTES


def test_every_kind_is_counted() -> None:
    for name in sorted(SPOILING - {"huge"}):
        met: Counter[str] = Counter()
        with served(name, met=met) as address:
            for _ in range(2):
                httpx.post(f"{address}{URL}", json=BODY)
        assert met == {name: 2}
