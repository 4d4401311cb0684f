"""Embedding models: what is asked, what is made of any answer, and what a failure is called."""

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.backends import Backend, open_embedder
from refinesynth.backends.embedding import LiteLLMEmbedder
from refinesynth.errors import ConfigurationError, RefinesynthError, RunStopped

KEY = "sk-canary-0815-0815"
SHORT = Backend(model="openai/text-embedding-3-small", retries=2, content_retries=1, longest_wait=0.001)


class Server:
    """Stands for `litellm.aembedding`: gives one answer after the other, the last one ever again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, **request: Any) -> object:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(vectors: Sequence[Sequence[float]], tokens: int = 7) -> dict[str, Any]:
    data = [{"object": "embedding", "index": number, "embedding": list(each)} for number, each in enumerate(vectors)]
    return {"data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


async def test_one_request_asks_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    shuffled = answer([[1.0, 2.0], [3.0, 4.0]])
    shuffled["data"].reverse()
    server = Server(shuffled)
    embedder = LiteLLMEmbedder(SHORT, call=server, price=lambda tokens: tokens * 1e-6)
    found = await embedder(["a smith", "a baker"])
    assert found.vectors == [[1.0, 2.0], [3.0, 4.0]]
    assert (found.tokens, found.cost_usd) == (7, 7e-6)
    assert server.requests == [
        {"model": SHORT.model, "input": ["a smith", "a baker"], "timeout": 300.0, "api_key": KEY}
    ]


async def test_a_server_of_ones_own_is_asked_and_gets_no_other_providers_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    backend = Backend(model="openai/bge-m3", base_url="http://localhost:1/v1", input_price=2.0)
    server = Server(answer([[1.0]], tokens=1_000_000))
    found = await LiteLLMEmbedder(backend, call=server)(["a smith"])
    assert server.requests[0]["api_base"] == "http://localhost:1/v1"
    assert server.requests[0]["api_key"] == "none"
    assert found.cost_usd == 2.0
    assert LiteLLMEmbedder(backend).name != open_embedder("openai/bge-m3").name


async def test_litellms_own_answers_and_prices_are_understood() -> None:
    import litellm

    own = litellm.EmbeddingResponse(data=[{"embedding": [0.5, 0.5], "index": 0, "object": "embedding"}])
    found = await LiteLLMEmbedder(SHORT, call=Server(own))(["a smith"])
    assert (found.vectors, found.tokens) == ([[0.5, 0.5]], 0)
    million = await LiteLLMEmbedder(SHORT, call=Server(answer([[1.0]], tokens=1_000_000)))(["a smith"])
    assert million.cost_usd == pytest.approx(0.02)
    unknown = await LiteLLMEmbedder(Backend(model="openai/nobody-knows"), call=Server(answer([[1.0]])))(["a smith"])
    assert unknown.cost_usd is None


async def test_passing_failures_are_tried_again() -> None:
    server = Server(ConnectionResetError("gone"), answer([[1.0], [2.0]]), answer([[1.0]]))
    found = await LiteLLMEmbedder(SHORT, call=server, price=lambda _tokens: None)(["a smith"])
    assert (found.vectors, len(server.requests)) == ([[1.0]], 3)


NO_EMBEDDINGS: list[Any] = [
    None,
    "nonsense",
    {},
    {"data": []},
    {"data": [{"index": 0, "embedding": []}]},
    {"data": [{"index": 5, "embedding": [1.0]}]},
    {"data": [{"index": 0, "embedding": "AAAA"}]},
]


@pytest.mark.parametrize("wrong", NO_EMBEDDINGS)
async def test_answers_that_are_none_are_given_up_on(wrong: object) -> None:
    server = Server(wrong)
    with pytest.raises(RunStopped, match=r"openai/text-embedding-3-small sent"):
        await LiteLLMEmbedder(SHORT, call=server)(["a smith"])
    assert len(server.requests) == 3


async def test_two_embeddings_of_one_text_are_none() -> None:
    twice = answer([[1.0], [2.0]])
    twice["data"][1]["index"] = 0
    with pytest.raises(RunStopped, match="sent 1 embeddings for 2 texts"):
        await LiteLLMEmbedder(SHORT, call=Server(twice))(["a smith", "a baker"])


async def test_a_wrong_key_is_said_at_once_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    class Unauthorised(Exception):
        status_code = 401

    server = Server(Unauthorised(f"Incorrect API key provided: {os.environ['OPENAI_API_KEY']}"))
    with pytest.raises(RunStopped, match="does not accept the key") as caught:
        await LiteLLMEmbedder(SHORT, call=server)(["a smith"])
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(server.requests) == 1


@given(
    data=st.recursive(st.none() | st.integers() | st.text(), lambda at: st.lists(at) | st.dictionaries(st.text(), at))
)
async def test_any_answer_is_vectors_or_a_fault(data: object) -> None:
    backend = SHORT.model_copy(update={"retries": 0})
    embedder = LiteLLMEmbedder(backend, call=Server({"data": data, "usage": data}), price=lambda _tokens: None)
    with pytest.raises(RefinesynthError):
        await embedder(["a smith", "a baker"])


@pytest.mark.parametrize("name", ["", "  ", "two words"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is no embedding model; give a litellm model string"):
        open_embedder(name)


def _is_there(_name: str) -> object:
    return object()


def _is_missing(_name: str) -> None: ...


async def test_local_models_are_those_of_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    loaded: list[str] = []

    class Model:
        def __init__(self, name: str) -> None:
            if name == "missing":
                raise OSError("no such model on the Hub")
            loaded.append(name)

        def encode(self, texts: list[str], **settings: object) -> Any:
            assert settings == {"normalize_embeddings": True, "show_progress_bar": False}
            return numpy.array([[float(len(text)), 0.0] for text in texts])

    module: Any = ModuleType("sentence_transformers")
    module.SentenceTransformer = Model
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr("refinesynth.backends.local_embedding.find_spec", _is_there)
    embedder = open_embedder("local:all-MiniLM-L6-v2")
    assert embedder.name == "local:all-MiniLM-L6-v2"
    assert loaded == []
    assert (await embedder(["a", "bb"])).vectors == [[1.0, 0.0], [2.0, 0.0]]
    assert (await embedder(["ccc"])).vectors == [[3.0, 0.0]]
    assert (await embedder(["ccc"])).cost_usd == 0
    assert loaded == ["all-MiniLM-L6-v2"]
    with pytest.raises(ConfigurationError, match=r"'missing' cannot be loaded \(OSError: no such model"):
        await open_embedder("local:missing")(["a"])


def test_local_models_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.backends.local_embedding.find_spec", _is_missing)
    with pytest.raises(ConfigurationError, match=r"refinesynth\[embeddings\]"):
        open_embedder("local:all-MiniLM-L6-v2")
    with pytest.raises(ConfigurationError, match="names no model"):
        open_embedder("local:")
