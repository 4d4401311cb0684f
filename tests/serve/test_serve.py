"""The HTTP server, over a real socket, with OpenAI's own client and by hand."""

import json
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import anyio
import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import BaseModel
from tiny_backend import BODY, URL, completion_of

from refinesynth.errors import InputError
from refinesynth.serve import create_app, running


class Tiny:
    """Answers by what is asked for: text, JSON by a schema, or a call of the first tool; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        asked = request["messages"][-1]["content"]
        if asked == "break":
            raise RuntimeError("secret-of-the-backend")
        message: dict[str, Any] = {"role": "assistant", "content": f"You said: {asked} — naïve ⚗️ " + "x" * 60}
        finish = "stop"
        if request.get("response_format"):
            message["content"] = json.dumps({"name": "Ada", "age": 36})
        if request.get("tools"):
            function = {
                "name": request["tools"][0]["function"]["name"],
                "arguments": '{"place": "the old observatory"}',
            }
            message |= {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
            finish = "tool_calls"
        return completion_of(request, message, finish)


def served(tiny: Any = None, **settings: Any) -> AbstractContextManager[str]:
    return running(create_app(tiny or Tiny(), **settings))


def client_at(address: str, *, timeout: float = 60.0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=timeout)


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture(scope="module")
def address(tiny: Tiny) -> Iterator[str]:
    with served(tiny) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with client_at(address) as client:
        yield client


class Person(BaseModel):
    name: str
    age: int


TOOL: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}},
            "required": ["place"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


def test_openai_client_parses_by_schema(client: openai.OpenAI, tiny: Tiny) -> None:
    completion = client.chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": "who?"}], response_format=Person
    )
    assert completion.choices[0].message.parsed == Person(name="Ada", age=36)
    assert tiny.requests[-1]["response_format"]["json_schema"]["name"] == "Person"


def test_openai_client_gets_a_tool_call(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "look"}], tools=[TOOL]
    )
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert (calls[0].id, calls[0].function.name) == ("call_1", "look")
    assert json.loads(calls[0].function.arguments) == {"place": "the old observatory"}
    assert completion.choices[0].finish_reason == "tool_calls"


def test_openai_client_reads_a_stream(client: openai.OpenAI) -> None:
    create: Any = partial(
        client.chat.completions.create, model="tiny", messages=[{"role": "user", "content": "naïve ⚗️"}]
    )
    whole: Any = create()
    pieces: list[Any] = list(create(stream=True, stream_options={"include_usage": True}))
    said = [choice.delta.content or "" for piece in pieces for choice in piece.choices]
    assert "".join(said) == whole.choices[0].message.content
    assert [choice.finish_reason for piece in pieces for choice in piece.choices] == [None, "stop"]
    assert pieces[-1].usage == whole.usage
    unasked: list[Any] = list(create(stream=True))
    assert [len(piece.choices) for piece in unasked] == [1, 1]
    first: Any = next(iter(create(stream=True, tools=[TOOL])))
    (call,) = first.choices[0].delta.tool_calls
    assert (call.index, call.function.name) == (0, "look")


async def test_many_requests_at_once_over_the_async_client() -> None:
    with served(latency=0.05) as address:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            answers: list[str | None] = []

            async def ask(number: int) -> None:
                completion = await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": f"number {number}."}]
                )
                answers.append(completion.choices[0].message.content)

            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(ask, number)
        async with httpx.AsyncClient() as plain:
            stats = (await plain.get(f"{address}/stats")).json()
    assert len({(answer or "").partition(".")[0] for answer in answers}) == 20
    assert stats["requests"] == 20
    assert stats["by_status"] == {"200": 20}
    assert stats["in_flight"] == 0
    assert 2 <= stats["max_in_flight"] <= 20


def test_the_completion_function_gets_known_keys_only(address: str, tiny: Tiny) -> None:
    body = {**BODY, "seed": 3, "temperature": 0.5, "user": None, "self": 1, "stream": False, "nonsense": {"a": 1}}
    assert httpx.post(f"{address}{URL}", json=body).status_code == 200
    assert tiny.requests[-1] == {**BODY, "seed": 3, "temperature": 0.5}


@pytest.mark.parametrize("body", [{"messages": BODY["messages"]}, {"model": "tiny", "messages": []}, []])
def test_a_request_without_model_or_messages_is_refused(address: str, body: object) -> None:
    answer = httpx.post(f"{address}{URL}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert "model and messages" in error["message"]


def test_what_is_no_json_is_refused(address: str) -> None:
    for content, kind, says in (
        (b"{", "application/json", "no JSON"),
        (b"\xff", "application/json", "no JSON"),
        (b"{}", "text/plain", "text/plain"),
    ):
        answer = httpx.post(f"{address}{URL}", content=content, headers={"content-type": kind})
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]


def test_other_paths_methods_and_hosts_are_refused(address: str) -> None:
    assert httpx.get(f"{address}/v1/embeddings").json()["error"]["code"] == "not_found"
    assert httpx.get(f"{address}/v1/embeddings").status_code == 404
    assert httpx.get(f"{address}{URL}").status_code == 405
    assert httpx.get(f"{address}/stats", headers={"host": "evil.example"}).status_code == 400


def test_a_backend_that_fails_is_a_server_error_without_its_words(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        answer = httpx.post(
            f"{address}{URL}", json={"model": "tiny", "messages": [{"role": "user", "content": "break"}]}
        )
    assert answer.status_code == 500
    assert "RuntimeError" in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def stats_when(address: str, *, in_flight: int) -> dict[str, Any]:
    """The server's counts once so many requests are under way."""
    for _ in range(1_000):
        stats = httpx.get(f"{address}/stats").json()
        if stats["in_flight"] == in_flight:
            return stats
        time.sleep(0.01)
    raise AssertionError


def test_a_port_that_is_taken_or_impossible_is_an_input_error(address: str) -> None:
    taken = int(address.rpartition(":")[2])
    with pytest.raises(InputError, match="choose another port"), running(create_app(Tiny()), port=taken):
        raise AssertionError


def test_a_client_that_leaves_while_it_sends_does_no_harm() -> None:
    with served() as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as sender:
            head = f"POST {URL} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{"
            sender.sendall(head.encode())
            stats_when(address, in_flight=1)
        stats = stats_when(address, in_flight=0)
        assert httpx.post(f"{address}{URL}", json=BODY).status_code == 200
    assert stats["requests"] == 1
    assert "200" not in stats["by_status"]


FOREGROUND = """
from refinesynth.serve import create_app, serve

async def call(**request):
    return {"choices": []}

try:
    serve(create_app(call), port=0, on_ready=lambda address: print(address, flush=True))
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.process
def test_in_the_foreground_it_serves_until_interrupted() -> None:
    with subprocess.Popen([sys.executable, "-c", FOREGROUND], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert httpx.get(f"{address}/stats").json()["requests"] == 0
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopped\n"
        assert process.wait(timeout=30) == 0
