"""Features that a server lacks: detected once per backend, and omitted from all later requests.

A lack counts when a request without the feature succeeds, as the prompt may be at fault; missing tools count at once.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter, ValidationError

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.reporting import report
from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader


class UnsupportedFeature(StrEnum):
    """Feature that a server may lack; the value is the name of its argument in a request."""

    SCHEMA = "response_format"
    """JSON schema of the output."""
    TOOLS = "tools"
    TOOL_CHOICE = "tool_choice"
    """Forced tool call; tools can be offered without it."""
    SEED = "seed"
    STOP = "stop"


_CONSEQUENCES: Mapping[UnsupportedFeature, str] = {
    UnsupportedFeature.SCHEMA: "structured answers are asked for by a tool call or, where there are none, as JSON in text",
    UnsupportedFeature.TOOLS: "it is asked for text",
    UnsupportedFeature.TOOL_CHOICE: "tool calls are asked for and not demanded",
    UnsupportedFeature.STOP: "answers may go on behind what is read",
    UnsupportedFeature.SEED: "requests carry none, so the same run again gives other answers",
}
_NOTE = "lacks"
_NOTE_ADAPTER = TypeAdapter(dict[str, frozenset[UnsupportedFeature]])


@dataclass(eq=False)
class ServerRecord:
    """Features that one server is known to lack; the set only grows."""

    unsupported: frozenset[UnsupportedFeature] = frozenset()


class UnsupportedFeatures:
    """Features that a run's servers are known to lack; written to the journal after `open`."""

    def __init__(self) -> None:
        self._servers = defaultdict[str, ServerRecord](ServerRecord)
        self._journal: Journal | None = None

    def open(self, journal: Journal) -> None:
        """Read the lacks that earlier processes of the run found, and write new ones to `journal`."""
        self.read(journal)
        self._journal = journal

    def read(self, journal: JournalReader) -> None:
        """Add the lacks in this journal."""
        try:
            self._add_all(_NOTE_ADAPTER.validate_json(journal.note(_NOTE) or b"{}"))
        except ValidationError as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its note {_NOTE!r}") from error

    def to_json(self) -> bytes:
        """Return the known lacks, for `merge` in another process."""
        return _NOTE_ADAPTER.dump_json(self._by_server())

    async def merge(self, known: bytes) -> None:
        """Add the lacks that another process found; they are committed when this returns."""
        before = self._by_server()
        self._add_all(_NOTE_ADAPTER.validate_json(known))
        if self._journal is not None and self._by_server() != before:
            await self._journal.keep_note(_NOTE, self.to_json())

    def _add_all(self, known: Mapping[str, frozenset[UnsupportedFeature]]) -> None:
        for name, features in known.items():
            self._servers[name].unsupported |= features

    def _by_server(self) -> dict[str, frozenset[UnsupportedFeature]]:
        return {name: server.unsupported for name, server in self._servers.items() if server.unsupported}

    def of(self, backend: Backend) -> ServerRecord:
        """Return the live record of this backend's server; later additions appear in it."""
        return self._servers[f"{backend.model} {server_of(backend) or ''}".rstrip()]

    async def add(self, backend: Backend, features: frozenset[UnsupportedFeature]) -> None:
        """Record lacks of this backend's server and log new ones; they are committed when this returns."""
        server = self.of(backend)
        if not (new := features - server.unsupported):
            return
        server.unsupported |= new
        for feature in sorted(new):
            text = f"{backend.label} does not take {feature}; {_CONSEQUENCES[feature]}"
            report("goes_without", backend, text, lacks=feature.value)
        if self._journal is not None:
            await self._journal.keep_note(_NOTE, self.to_json())
