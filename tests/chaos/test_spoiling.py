"""What a server is made to spoil in the tests of hostile answers is what it is called."""

import json
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

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


def contents(found: list[httpx.Response]) -> Iterator[str]:
    for answer in found:
        with suppress(ValueError, TypeError, KeyError, LookupError):
            yield json.loads(answer.content)["choices"][0]["message"]["content"]


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


def test_a_wrong_type_holds_the_answer_or_a_page() -> None:
    found = answers("wrong_type")
    assert {answer.headers["content-type"].partition(";")[0] for answer in found} == {"text/html"}
    assert {answer.content[:1] for answer in found} == {b"{", b"<"}


def test_no_choices_length_and_filter_are_what_they_are_called() -> None:
    assert [answer.json().get("choices", "missing") in ([], None, "missing") for answer in answers("no_choices")]
    for name, reason in (("length", "length"), ("filter", "content_filter")):
        found = [answer.json()["choices"][0] for answer in answers(name)]
        assert {choice["finish_reason"] for choice in found} == {reason}
        assert len({choice["message"]["content"] for choice in found}) > 5


def test_garbled_content_breaks_lines_terminals_and_encodings() -> None:
    found = "".join(str(content) for content in contents(answers("garble", count=120)))
    for character in ("\ud800", "\x00", "\x1b", "\u202e", "\u2028", "\x85", "\r", "\ufeff"):
        assert character in found or json.dumps(character)[1:-1] in found, ascii(character)
    parsed = 0
    for content in contents(answers("garble", count=40)):
        with suppress(ValueError):
            parsed += isinstance(json.loads(content), dict)
    assert 5 < parsed < 20, "of twenty that were JSON, some are still"


def test_deep_numbers_and_duplicates_reach_body_and_content() -> None:
    deep = answers("deep")
    assert all(
        b"[" * 5_000 in answer.content or b'{"turns":' * 5_000 in answer.content.replace(b"\\", b"") for answer in deep
    )
    assert {b'"details"' in answer.content for answer in deep} == {True, False}
    numbers = b"".join(answer.content for answer in answers("numbers", count=120))
    assert all(number in numbers for number in (b"1e400", b"NaN", b"Infinity", b"9" * 5_000))
    inner = b"".join(str(content).encode() for content in contents(answers("numbers", count=120)))
    assert b"1e400" in inner
    for answer in answers("duplicates"):
        assert len(json.loads(answer.content, object_pairs_hook=list)) >= 6
    assert any(
        len({key for key, _ in pairs}) < len(pairs)
        for answer in answers("duplicates")
        for pairs in [json.loads(answer.content, object_pairs_hook=list)]
    )


def test_mistyped_values_stand_anywhere() -> None:
    true = json.loads(answers("length", count=1)[0].content)
    changed: set[str] = set()
    for answer in answers("mistyped", count=200):
        found: Any = answer.json()
        if not isinstance(found, dict):
            changed.add("all of it")
            continue
        found = cast("dict[str, Any]", found)
        changed |= {key for key in true if type(found.get(key)) is not type(true[key])}
    assert {"all of it", "choices", "usage", "model"} <= changed


def test_every_kind_is_counted() -> None:
    for name in sorted(SPOILING - {"huge"}):
        met: Counter[str] = Counter()
        with served(name, met=met) as address:
            for _ in range(2):
                httpx.post(f"{address}{URL}", json=BODY)
        assert met == {name: 2}
