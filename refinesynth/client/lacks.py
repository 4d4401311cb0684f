"""Features that a server turned out to lack: found out once for each backend, and from then on requests go without it.

That it has not is believed once a request without it is answered: a refusal may as well be about the prompt, which it
often repeats.
"""

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import server_of
from refinesynth.client.classify_error import Fault, FaultKind
from refinesynth.errors import StorageError
from refinesynth.journal import Journal, JournalReader

_LOG = logging.getLogger("refinesynth.backends")


class Lack(StrEnum):
    """Something that requests can go without, by the name of the argument that asks for it."""

    SCHEMA = "response_format"
    """A JSON schema that the answer is held to."""
    TOOLS = "tools"
    DEMAND = "tool_choice"
    """A tool call that is demanded; it can be asked for all the same."""
    SEED = "seed"


_THEN: Mapping[Lack, str] = {
    Lack.SCHEMA: "structured answers are asked for by a tool call or, where there are none, as JSON in text",
    Lack.TOOLS: "it is asked for text",
    Lack.DEMAND: "tool calls are asked for and not demanded",
    Lack.SEED: "requests carry none, so the same run again gives other answers",
}
_REFUSALS = frozenset({FaultKind.REJECTED, FaultKind.NOT_FOUND})
_CRASH = 500
_CRASHES = 2
"""Crashes over a request with a schema after which it is asked once without."""
_NOTE = "lacks"
_FOUND = TypeAdapter(dict[str, frozenset[Lack]])


class Lacks:
    """What is known of the servers of a run's backends; kept in its journal once that is open."""

    def __init__(self) -> None:
        self._found: dict[str, frozenset[Lack]] = {}
        self._journal: Journal | None = None

    def open(self, journal: Journal, elsewhere: Sequence[JournalReader] = ()) -> None:
        """Take over what was found out by earlier processes of the run, and keep in `journal` what is from now on.

        Raises:
            StorageError: A journal cannot be read.
        """
        self.read((journal, *elsewhere))
        self._journal = journal

    def read(self, journals: Sequence[JournalReader]) -> None:
        """Take over what is in these.

        Raises:
            StorageError: One cannot be read.
        """
        for one in journals:
            try:
                known = _FOUND.validate_json(one.note(_NOTE) or b"{}")
            except ValidationError as error:
                raise StorageError(f"the journal at {str(one.path)!r} is damaged: its note {_NOTE!r}") from error
            self._take_over(known)

    def to_json(self) -> bytes:
        """What is known, for `learn` in another process."""
        return _FOUND.dump_json(self._found)

    async def learn(self, known: bytes) -> None:
        """Take over what another process has found out; committed when this returns.

        Raises:
            StorageError: It could not be committed.
        """
        before = dict(self._found)
        self._take_over(_FOUND.validate_json(known))
        if self._journal is not None and self._found != before:
            await self._journal.keep_note(_NOTE, self.to_json())

    def _take_over(self, known: Mapping[str, frozenset[Lack]]) -> None:
        for name, lacks in known.items():
            self._found[name] = self._found.get(name, frozenset()) | lacks

    def of(self, backend: Backend) -> frozenset[Lack]:
        """What this backend's server has not."""
        return self._found.get(_name(backend), frozenset())

    async def add(self, backend: Backend, lacks: frozenset[Lack]) -> None:
        """This backend's server has not these either; said once, and committed when this returns.

        Raises:
            StorageError: It could not be committed.
        """
        known = self.of(backend)
        if lacks <= known:
            return
        self._found[_name(backend)] = known | lacks
        for lack in sorted(lacks - known):
            text = f"{backend.label} does not take {lack}; {_THEN[lack]}"
            facts = {"event": "goes_without", "backend": backend.label, "lacks": lack.value, "text": text}
            _LOG.warning("%s", text, extra={"facts": facts})
        if self._journal is not None:
            await self._journal.keep_note(_NOTE, self.to_json())


def _name(backend: Backend) -> str:
    return f"{backend.model} {server_of(backend) or ''}".rstrip()


class Trial:
    """One request's way to a form that its server takes."""

    def __init__(self, may: frozenset[Lack], proved: set[str]) -> None:
        """Nothing was asked yet.

        Args:
            may: What may be left out of the request.
            proved: What the server has, because it was answered; see `carried`.
        """
        self.without: frozenset[Lack] = frozenset()
        """What the request does without, to see whether that is answered."""
        self._may = may
        self._proved = proved
        self._crashes = 0

    def goes_on(self, fault: Fault, request: Mapping[str, Any]) -> bool:
        """Whether the request, which met this fault, is to be made at once in another form."""
        crashed = fault.status == _CRASH
        lack: Lack | None = None
        if fault.kind in _REFUSALS or crashed:
            asked = self._asked(request)
            lack = next((one for name in fault.names for one in _meant(name, request) if one in asked), None)
        if lack is None and crashed:
            lack = self._after_a_crash(request)
        if lack is None:
            return False
        self.without |= {lack}
        return True

    def _after_a_crash(self, request: Mapping[str, Any]) -> Lack | None:
        """Try once without a schema, over which some servers break silently; put it back where that breaks too."""
        self._crashes += 1
        if self._crashes > _CRASHES:
            self.without -= {Lack.SCHEMA}
        return Lack.SCHEMA if self._crashes == _CRASHES and Lack.SCHEMA in self._asked(request) else None

    def _asked(self, request: Mapping[str, Any]) -> set[Lack]:
        found = carried(request).items()
        return {lack for lack, proof in found if proof not in self._proved and lack in self._may - self.without}


def _meant(name: str, request: Mapping[str, Any]) -> Sequence[Lack]:
    if name not in set(Lack):
        return ()
    # A choice is named as well where there is none: tools that the model may call or not.
    return (Lack.DEMAND, Lack.TOOLS) if name == Lack.DEMAND and "tools" in request else (Lack(name),)


def carried(request: Mapping[str, Any]) -> dict[Lack, str]:
    """Features that a request asks for and a server may lack, each with what an answer proves."""
    found = {lack: lack.value for lack in (Lack.TOOLS, Lack.SEED) if lack.value in request}
    if request.get(Lack.DEMAND) == "required":
        found[Lack.DEMAND] = Lack.DEMAND.value
    form = request.get(Lack.SCHEMA)
    if isinstance(form, Mapping) and "json_schema" in form:
        found[Lack.SCHEMA] = f"{Lack.SCHEMA} {form['json_schema']['name']}"
    return found
