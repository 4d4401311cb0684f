"""Answers and connections that break, and the log of what was paid for, as clients meet them."""

import json
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tiny_backend import BODY, URL, tiny

from refinesynth.errors import InputError
from refinesynth.serve import NAMES, HttpFaults, app, create_app, running


def served(name: str, **settings: Any) -> Any:
    return running(create_app(tiny, faults=HttpFaults.model_validate({name: 1.0}), **settings))


def test_429_comes_with_and_without_retry_after() -> None:
    with running(create_app(tiny, faults=HttpFaults(statuses={429: 0.5}, busy=0.5))) as address:
        found = [httpx.post(f"{address}{URL}", json=BODY) for _ in range(12)]
        stats = httpx.get(f"{address}/stats").json()
    assert {answer.status_code for answer in found} == {429}
    assert {answer.headers.get("retry-after") for answer in found} == {"1", None}
    assert stats["by_status"] == {"429": 12}
    assert stats["paid"] == 0


def exchanged(address: str) -> tuple[bytes, bool]:
    """All that the server sends over a connection until it closes it or is silent, and whether it reset it."""
    host, _, port = address.removeprefix("http://").partition(":")
    body = json.dumps(BODY).encode()
    head = (
        f"POST {URL} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode() + body)
        try:
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            return received, True
    return received, False


def test_a_reset_comes_before_in_or_after_the_body() -> None:
    with running(create_app(tiny)) as address:
        true = httpx.post(f"{address}{URL}", json=BODY).content
    for name, sent in (("before", None), ("middle", true[: len(true) // 2]), ("after", true)):
        with served(name) as address:
            received, was_reset = exchanged(address)
            stats = httpx.get(f"{address}/stats").json()
        assert was_reset, name
        assert (received.partition(b"\r\n\r\n")[2] if sent else received) == (sent or b"")
        assert stats["by_status"] == {name: 1}
        assert stats["paid"] == (name != "before")


def test_a_dripping_answer_is_whole_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "DRIP_SECONDS", 0.001)
    with served("drip") as address, httpx.stream("POST", f"{address}{URL}", json=BODY) as answer:
        pieces = list(answer.iter_raw())
    assert json.loads(b"".join(pieces))["choices"][0]["finish_reason"] == "stop"
    assert len(pieces) > 20


def test_every_fault_is_survived_by_the_server_and_counted() -> None:
    for name in sorted(set(NAMES) - {"hang", "drip"}):
        with served(name) as address:
            for _ in range(2):
                with suppress(httpx.TransportError):
                    httpx.post(f"{address}{URL}", json=BODY)
            stats = httpx.get(f"{address}/stats").json()
        assert stats["by_status"] == {"429" if name == "busy" else name: 2}
        assert stats["in_flight"] == 0


def test_the_log_says_whose_what_and_whether_it_was_paid_for(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    faults = HttpFaults(statuses={500: 0.3}, middle=0.3)
    with running(create_app(tiny, faults=faults, log=log)) as address, httpx.Client() as client:
        for seed in range(20):
            with suppress(httpx.TransportError):
                headers = {"x-session-id": f"episode-{seed % 2}"}
                client.post(f"{address}{URL}", json={**BODY, "seed": seed}, headers=headers)
        with suppress(httpx.TransportError):
            client.post(f"{address}{URL}", json={**BODY, "temperature": 1})
        stats = client.get(f"{address}/stats").json()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(21))
    assert [line["seed"] for line in lines[:20]] == list(range(20))
    assert {line["session"] for line in lines[:20]} == {"episode-0", "episode-1"}
    assert lines[20]["session"] is None
    assert len({line["digest"] for line in lines[:20]}) == 1, "the seed is no part of what is asked"
    assert lines[20]["digest"] != lines[0]["digest"]
    for line in lines:
        assert line["paid"] == (line["status"] == 200)
    assert stats["paid"] == sum(line["paid"] for line in lines) > 0


def test_a_log_is_appended_to_and_one_that_cannot_be_is_an_input_error(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for _ in range(2):
        with running(create_app(tiny, log=log)) as address:
            httpx.post(f"{address}{URL}", json=BODY)
    assert len(log.read_text().splitlines()) == 2
    with pytest.raises(InputError, match="choose another file"):
        create_app(tiny, log=tmp_path / "missing" / "log.jsonl")


def test_a_client_that_resets_while_an_answer_is_made_is_still_billed(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with running(create_app(tiny, latency=0.05, log=log)) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        body = json.dumps(BODY).encode()
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST {URL} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            while not httpx.get(f"{address}/stats").json()["requests"]:
                pass
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while httpx.get(f"{address}/stats").json()["in_flight"]:
            pass
    assert json.loads(log.read_text())["paid"]
