"""Embeddings on this machine, by sentence-transformers (extra `embeddings`)."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import anyio
import anyio.to_thread

from refinesynth.errors import ConfigurationError
from refinesynth.personas.embedding import Embedded


class LocalEmbedder:
    """A model of sentence-transformers, loaded when it is first asked; on a GPU where there is one."""

    def __init__(self, model: str) -> None:
        """Nothing is loaded yet.

        Raises:
            ConfigurationError: No model is named, or sentence-transformers is not installed.
        """
        if not model.strip():
            raise ConfigurationError("'local:' names no model; write for example local:all-MiniLM-L6-v2")
        if find_spec("sentence_transformers") is None:
            raise ConfigurationError(
                "local embeddings need the package sentence-transformers: pip install 'refinesynth[embeddings]'"
            )
        self._model_name = model.strip()
        self._model: Any = None
        # One call at a time: a second would only share the processor.
        self._turn = anyio.Semaphore(1)

    @property
    def name(self) -> str:
        """The model with its prefix."""
        return f"local:{self._model_name}"

    async def __call__(self, texts: Sequence[str], /) -> Embedded:
        """Embed some texts, in a thread. Costs nothing.

        Raises:
            ConfigurationError: There is no such model, or it cannot be loaded.
        """
        async with self._turn:
            return Embedded(await anyio.to_thread.run_sync(self._encode, list(texts)))

    def _encode(self, texts: list[str]) -> list[list[float]]:
        if self._model is None:
            self._model = self._load()
        return self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()

    def _load(self) -> Any:
        # Typed as Any: the package is optional.
        sentence_transformers: Any = import_module("sentence_transformers")
        try:
            return sentence_transformers.SentenceTransformer(self._model_name)
        except Exception as error:
            raise ConfigurationError(
                f"the embedding model {self._model_name!r} cannot be loaded ({type(error).__name__}: {error}); give the name of "
                f"one of sentence-transformers, or a folder with one"
            ) from error
