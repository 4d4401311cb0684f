"""The limiter over real sockets: a server that refuses some of the requests is asked again, and less."""

import anyio
import httpx
from backend_doubles import Waits
from faulty_server import faulty_app
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest

from refinesynth.backends import Backend
from refinesynth.client.model import LiteLLMModel
from refinesynth.rehearsal import Rehearsal
from refinesynth.serve import running


class Client:
    """A completion function over httpx, whose errors carry status and headers as those of other clients do."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self.url = url
        self.http = http

    async def __call__(self, **request: object) -> object:
        body = {name: request[name] for name in ("model", "messages")}
        response = await self.http.post(f"{self.url}/v1/chat/completions", json=body)
        if response.status_code != 200:
            error = OSError(response.text)
            error.__dict__.update(status_code=response.status_code, response=response)
            raise error
        return response.json()


async def test_a_server_that_refuses_some_requests_answers_all_in_the_end() -> None:
    faults = {429: 0.02, "busy": 0.15}
    with running(faulty_app(Rehearsal(), faults, latency=0.01, seed=3)) as url:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as http:
            model = LiteLLMModel(Backend(model="m"), call=Client(url, http), sleep=Waits())
            answered = 0

            async def one() -> None:
                nonlocal answered
                await model_request(model, [ModelRequest.user_text_prompt("hi")])
                answered += 1

            async with anyio.create_task_group() as group:
                for _ in range(60):
                    group.start_soon(one)
            seen = (await http.get(f"{url}/stats")).json()
    assert answered == 60
    assert seen["requests"] > 60
    assert seen["max_in_flight"] < 60
    assert (model.limiter.state.in_flight, model.limiter.state.waiting) == (0, 0)
