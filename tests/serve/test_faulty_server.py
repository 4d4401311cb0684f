"""The faults that other tests rely on, as clients meet them, and the log of what was paid for."""

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import faulty_server
import httpx
import pytest
from faulty_server import FAULTS, faulty_app
from tiny_backend import BODY, URL, tiny

from refinesynth.serve import running


def served(name: str) -> Any:
    return running(faulty_app(tiny, {name: 1.0}))


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
    with running(faulty_app(tiny)) as address:
        true = httpx.post(f"{address}{URL}", json=BODY).content
    for name, sent in (("before", None), ("middle", true[: len(true) // 2]), ("after", true)):
        with served(name) as address:
            received, was_reset = exchanged(address)
            stats = httpx.get(f"{address}/stats").json()
        assert was_reset, name
        assert (received.partition(b"\r\n\r\n")[2] if sent else received) == (sent or b"")
        assert stats["by_status"] == {name: 1}


def test_a_dripping_answer_is_whole_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty_server, "DRIP_SECONDS", 0.001)
    with served("drip") as address, httpx.stream("POST", f"{address}{URL}", json=BODY) as answer:
        pieces = list(answer.iter_raw())
    assert json.loads(b"".join(pieces))["choices"][0]["finish_reason"] == "stop"
    assert len(pieces) > 20


def test_every_fault_is_survived_by_the_server_and_counted() -> None:
    for name in sorted(set(FAULTS) - {"hang", "drip"}):
        with served(name) as address:
            for _ in range(2):
                with suppress(httpx.TransportError):
                    httpx.post(f"{address}{URL}", json=BODY)
            stats = httpx.get(f"{address}/stats").json()
        assert stats["by_status"] == {"429" if name == "busy" else name: 2}
        assert stats["in_flight"] == 0


def test_the_log_says_whose_what_and_whether_it_was_paid_for(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with running(faulty_app(tiny, {500: 0.3, "middle": 0.3}, log=log)) as address, httpx.Client() as client:
        for seed in range(20):
            with suppress(httpx.TransportError):
                headers = {"x-session-id": f"episode-{seed % 2}"}
                client.post(f"{address}{URL}", json={**BODY, "seed": seed}, headers=headers)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["number"], line["seed"]) for line in lines] == [(at, at) for at in range(20)]
    assert {line["session"] for line in lines} == {"episode-0", "episode-1"}
    assert len({line["digest"] for line in lines}) == 1, "the seed is no part of what is asked"
    assert {line["paid"] for line in lines} == {True, False}
    assert all(line["paid"] == (line["status"] == 200) for line in lines)
