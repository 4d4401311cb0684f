"""Fixtures for the backends: a chat server on 127.0.0.1, and waits that take no time."""

from collections.abc import Iterator

import pytest
from backend_doubles import Waits
from chat_server import ChatServer


@pytest.fixture(scope="session")
def _running_server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
def server(_running_server: ChatServer) -> ChatServer:
    _running_server.forget()
    return _running_server


@pytest.fixture
def waits() -> Waits:
    return Waits()
