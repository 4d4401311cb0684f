"""Features that a server lacks: detected once per backend, and omitted from all later requests.

A lack counts when a request without the feature succeeds, as the prompt may be at fault; missing tools count at once.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    DEMAND = "tool_choice"
    """Forced tool call; tools can be offered without it."""
    SEED = "seed"
    STOP = "stop"


_THEN: Mapping[UnsupportedFeature, str] = {
    UnsupportedFeature.SCHEMA: "structured answers are asked for by a tool call or, where there are none, as JSON in text",
    UnsupportedFeature.TOOLS: "it is asked for text",
    UnsupportedFeature.DEMAND: "tool calls are asked for and not demanded",
    UnsupportedFeature.STOP: "answers may go on behind what is read",
    UnsupportedFeature.SEED: "requests carry none, so the same run again gives other answers",
}
_NOTE = "lacks"
_FOUND = TypeAdapter(dict[str, frozenset[UnsupportedFeature]])


@dataclass(eq=False)
class ServerLacks:
    """Features that one server is known to lack; the set only grows."""

    lacks: frozenset[UnsupportedFeature] = frozenset()


class UnsupportedFeatures:
    """Features that a run's servers are known to lack; written to the journal after `open`."""

    def __init__(self) -> None:
        self._found = defaultdict[str, ServerLacks](ServerLacks)
        self._journal: Journal | None = None

    def open(self, journal: Journal, elsewhere: Sequence[JournalReader] = ()) -> None:
        """Read the lacks that earlier processes of the run found, and write new ones to `journal`."""
        self.read((journal, *elsewhere))
        self._journal = journal

    def read(self, journals: Sequence[JournalReader]) -> None:
        """Add the lacks in these journals."""
        for journal in journals:
            try:
                known = _FOUND.validate_json(journal.note(_NOTE) or b"{}")
            except ValidationError as error:
                raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its note {_NOTE!r}") from error
            self._take_over(known)

    def to_json(self) -> bytes:
        """Return the known lacks, for `learn` in another process."""
        return _FOUND.dump_json(self._lacks())

    async def learn(self, known: bytes) -> None:
        """Add the lacks that another process found; they are committed when this returns."""
        old_lacks = self._lacks()
        self._take_over(_FOUND.validate_json(known))
        if self._journal is not None and self._lacks() != old_lacks:
            await self._journal.keep_note(_NOTE, self.to_json())

    def _take_over(self, known: Mapping[str, frozenset[UnsupportedFeature]]) -> None:
        for name, lacks in known.items():
            self._found[name].lacks |= lacks

    def _lacks(self) -> dict[str, frozenset[UnsupportedFeature]]:
        return {name: server.lacks for name, server in self._found.items() if server.lacks}

    def of(self, backend: Backend) -> ServerLacks:
        """Return the live record of this backend's server; later additions appear in it."""
        return self._found[f"{backend.model} {server_of(backend) or ''}".rstrip()]

    async def add(self, backend: Backend, lacks: frozenset[UnsupportedFeature]) -> None:
        """Record lacks of this backend's server and log new ones; they are committed when this returns."""
        server = self.of(backend)
        if not (new_lacks := lacks - server.lacks):
            return
        server.lacks |= new_lacks
        for lack in sorted(new_lacks):
            text = f"{backend.label} does not take {lack}; {_THEN[lack]}"
            report("goes_without", backend, text, lacks=lack.value)
        if self._journal is not None:
            await self._journal.keep_note(_NOTE, self.to_json())
