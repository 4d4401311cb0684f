"""Features that a server lacks: detected once per backend, and omitted from all later requests.

A lack counts when a request without the feature succeeds, as the prompt may be at fault; missing tools count at once.
"""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import TypeAdapter, ValidationError

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.reporting import report
from refinesynth.errors import StorageError
from refinesynth.journal import Journal


class UnsupportedFeature(StrEnum):
    """Feature that a server may lack; the value is the name of its argument in a request."""

    SCHEMA = "response_format"
    """JSON schema of the output."""
    TOOLS = "tools"
    TOOL_CHOICE = "tool_choice"
    """Forced tool call; tools can be offered without it."""
    SEED = "seed"
    STOP = "stop"


_NOTE = "lacks"
_NOTE_ADAPTER = TypeAdapter(dict[str, frozenset[UnsupportedFeature]])


def server_name(backend: Backend) -> str:
    """Return the name of a backend's server and model in `UnsupportedFeatures`."""
    return f"{backend.model} {server_of(backend) or ''}".rstrip()


class UnsupportedFeatures:
    """Features that a run's servers are known to lack; written to the journal after `open`."""

    def __init__(self) -> None:
        self._servers = dict[str, frozenset[UnsupportedFeature]]()
        self._journal: Journal | None = None

    def open(self, journal: Journal) -> None:
        """Read the lacks that earlier processes of the run found, and write new ones to `journal`."""
        try:
            self._add_all(_NOTE_ADAPTER.validate_json(journal.note(_NOTE) or b"{}"))
        except ValidationError as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its note {_NOTE!r}") from error
        self._journal = journal

    def to_json(self) -> bytes:
        """Return the known lacks, for `merge` in another process."""
        return _NOTE_ADAPTER.dump_json(self._servers)

    async def merge(self, known: bytes) -> None:
        """Add the lacks that another process found; they are committed when this returns."""
        before = dict(self._servers)
        self._add_all(_NOTE_ADAPTER.validate_json(known))
        if self._journal is not None and self._servers != before:
            await self._journal.keep_note(_NOTE, self.to_json())

    def _add_all(self, known: Mapping[str, frozenset[UnsupportedFeature]]) -> None:
        for name, features in known.items():
            self._servers[name] = self.of(name) | features

    def of(self, server: str) -> frozenset[UnsupportedFeature]:
        """Return the lacks of the server with this `server_name`."""
        return self._servers.get(server, frozenset())

    async def add(self, backend: Backend, features: frozenset[UnsupportedFeature]) -> None:
        """Record lacks of this backend's server and log new ones; they are committed when this returns."""
        name = server_name(backend)
        if not (new := features - self.of(name)):
            return
        self._add_all({name: new})
        for feature in sorted(new):
            text = f"{backend.label} does not take {feature}; requests go without it"
            report("goes_without", backend, text, lacks=feature.value)
        if self._journal is not None:
            await self._journal.keep_note(_NOTE, self.to_json())
