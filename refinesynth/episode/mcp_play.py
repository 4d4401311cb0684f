"""Live play whose environment is the user's MCP server: it executes the Player's calls, and its results are the
observations.
"""

import logging
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, cast

import anyio
import orjson
from anyio.abc import TaskStatus
from pydantic import ValidationError

from refinesynth.actions.calls import call_of
from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.async_contexts import background_tasks
from refinesynth.backends.backend import Role
from refinesynth.client.completion_parsing import ReadCompletion
from refinesynth.client.session import RequestContext
from refinesynth.episode.conversation import Conversation, RetryFeedback, Unanswerable
from refinesynth.episode.play import EpisodeContext, Turns
from refinesynth.episode.ruled_action import bounded
from refinesynth.errors import EpisodeAbandoned
from refinesynth.lazy_imports import check_installed
from refinesynth.roles import DungeonMaster
from refinesynth.rules.actions import SUCCESS
from refinesynth.rules.rule import Violation, exchanges
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.text.formatting import one_line, printable, quoted
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, Script
from refinesynth.trajectory.turns import MAX_OBSERVATION

if TYPE_CHECKING:
    from mcp.client import Client

START_TIMEOUT = 60.0
"""Seconds in which a server must start and answer."""
CALL_TIMEOUT = 60.0
"""Seconds for a call, about the default of MCP clients."""
ROLE = "tools"
"""Key of the server's results in the journal and in `Provenance.models`."""

_MAX_ERROR_CHARACTERS = 500
_ARGUMENT_ERROR = re.compile(
    r"validation error|invalid (?:argument|param|input)|unexpected keyword|(?:required|missing) [\w ]{0,60}(?:argument|property|parameter|field)"
    r"|is a required property|is not of type",
    re.IGNORECASE,
)
"""Pattern of error messages about a call's arguments."""


@asynccontextmanager
async def mcp_session(
    server: str, *, seconds: float = START_TIMEOUT
) -> AsyncGenerator[tuple["Client", anyio.CancelScope], None]:
    """Open a session with the MCP server behind a command or a URL; yield the client and its timeout scope,
    which covers the whole block unless its deadline is extended. At the end the server process has stopped.

    The process inherits only HOME, PATH and a few similar variables. Raises ValueError: the server cannot be started,
    does not answer in time, or is no MCP server; the message quotes its last output. Other errors of the block are
    raised unchanged.
    """
    check_installed("mcp", "mcp")
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.shared.exceptions import MCPError

    server_errors = (MCPError, ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError)
    block_error: Exception | None = None
    # The error quotes the server's output on stderr.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            is_url = server.startswith(("http://", "https://"))
            command, *args = [server] if is_url else shlex.split(server) or [""]
            if not command:
                raise ValueError("the command is empty")  # noqa: TRY301 - worded as other errors of the server
            process = stdio_client(StdioServerParameters(command=command, args=args), errlog=log)
            with anyio.fail_after(seconds) as limit:
                async with Client(server if is_url else process) as client:
                    try:
                        yield client, limit
                    except Exception as error:
                        block_error = None if isinstance(error, server_errors) else error
                        raise
        except Exception as error:
            if block_error is not None:
                raise block_error  # noqa: B904 - as it was, not in the group of the session's tasks
            cause: Any = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cast("Any", cause).exceptions[0]
            reason = f"no answer in {seconds:g} s" if isinstance(cause, TimeoutError) else str(cause) or repr(cause)
            log.seek(0)
            output = log.read()[-_MAX_ERROR_CHARACTERS:].strip()
            raise ValueError(
                f"{one_line(reason, size=_MAX_ERROR_CHARACTERS)}{f'; it wrote {one_line(output)}' if output else ''}"
            ) from error


@dataclass(frozen=True)
class Result:
    """Result of a call."""

    text: str
    """Result text: not blank, without control characters, at most `MAX_OBSERVATION` characters, never a success
    message."""
    kind: MistakeKind | None = None
    """Kind of the mistake if the call failed."""

    @classmethod
    def of(cls, text: str, *, failed: bool = False, of_arguments: bool = False) -> "Result":
        of_arguments = of_arguments or _ARGUMENT_ERROR.search(text[:MAX_OBSERVATION]) is not None
        kind = MistakeKind.PARAMETER if of_arguments else MistakeKind.LOGIC
        result = bounded(printable(text)) or f"The call {'failed' if failed else 'returned nothing'}."
        return cls(result, kind if failed else None)


class McpConversation(Conversation):
    """Play of one script on the user's MCP server.

    A session executes the calls of one sequence of turns. After turns were taken back, or in a resumed run, a new
    session repeats the calls of the remaining turns; their results must be the same.
    """

    def __init__(self, context: EpisodeContext, script: Script) -> None:
        super().__init__(context, script)
        self.dungeon_master = context.actor(DungeonMaster, Role.DUNGEON_MASTER)
        self._server = context.settings.server or ""
        self._connection: tuple[Client, anyio.CancelScope] | None = None
        self._closed = anyio.Event()
        self._executed: tuple[str, ...] = ()
        """Actions executed in the session."""

    async def play(self, start: Turns = ()) -> Draft | None:
        async with background_tasks() as self._tasks:
            return await super().play(start)

    async def _exchange(self, turns: Turns, feedback: RetryFeedback) -> tuple[PlayerTurn, DungeonMasterTurn]:
        act = await self._act(turns, feedback)
        if match_in(self.script, act.action) is None:
            # Not sent: calls of other tools are not allowed, and invalid values have no effect.
            message = explain_mismatch(self.script.actions, act.action).message
            result = Result.of(message, failed=True, of_arguments=True)
        else:
            result = await self._journaled_result(turns, act)
        if result.kind is not None:
            thought = f"The call failed: a {result.kind} mistake."
            return act, DungeonMasterTurn.of_kind(result.kind, thought=thought, observation=result.text)
        thought, done = await self.dungeon_master.see_completion(self.script, turns, act.action, result.text)
        observation = f"{result.text}\n{SUCCESS}" if done else result.text
        return act, DungeonMasterTurn.of_kind(None, thought=thought, observation=observation)

    def _mistake_request(self, turns: Turns, **known: Any) -> MistakeRequest | None:
        """Request only mistakes that are not executed, because the server might carry out any other."""
        request = super()._mistake_request(turns, **known)
        is_made = request is not None and request.style in {"late", "give_up"}
        return request if request is None or is_made else request._replace(kind=MistakeKind.PARAMETER)

    async def _journaled_result(self, turns: Turns, act: PlayerTurn) -> Result:
        """Return the result of a call. It is committed to the journal before it is used."""
        history = [(turn.action if isinstance(turn, PlayerTurn) else turn.observation) for turn in (*turns, act)]
        digest = blake2b(write_json([self.number, self.record.drafts, *history]), digest_size=16).digest()
        context = RequestContext(self.session, ROLE, digest)
        if (paid := context.recall()) is not None:
            text, kind = orjson.loads(ReadCompletion.from_paid(paid).text)
            return Result(text, kind and MistakeKind(kind))
        try:
            result = await self._execute(turns, act.action)
        except _CallFailed as error:
            await self._close()
            problem, turn = error.args
            message = f"The tools gave no result to {quoted(act.action)}: {problem}. Take another action."
            violation = Violation(
                rule="ToolServer", turn=turn, code="no_result", message=message, keeps_prefix=turn > 0
            )
            raise Unanswerable((*turns, act), violation) from error
        await context.keep(
            ReadCompletion(text=write_json([result.text, result.kind]).decode()), 0.0, model="MCP server"
        )
        return result

    async def _execute(self, turns: Turns, action: str) -> Result:
        """Return the result of `action` after the calls of `turns`. Raises _CallFailed, and EpisodeAbandoned: the server
        does not start.
        """
        executed = [step for step in exchanges(turns) if match_in(self.script, step.player.action) is not None]
        if self._connection is None or self._executed != tuple(step.player.action for step in executed):
            await self._close()
            try:
                self._connection = await self._tasks.start(self._run_session)
            except ValueError as error:
                raise EpisodeAbandoned(f"the MCP server does not answer: {error}") from error
            for index, act, answer in executed:
                result = await self._call(act.action, index)
                if isinstance(answer, DungeonMasterTurn) and result != Result(answer.observation, answer.mistake_kind):
                    problem = f"the server is not deterministic; {quoted(act.action)} now has another result"
                    raise _CallFailed(problem, 0)
        return await self._call(action, len(turns))

    async def _call(self, action: str, turn: int) -> Result:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND

        if self._connection is None:
            raise _CallFailed("the session is closed", turn)
        call = call_of(self.script, action)
        self._executed += (action,)
        try:
            with anyio.fail_after(CALL_TIMEOUT):
                result = await self._connection[0].call_tool(call.name, {**call.arguments})
        except TimeoutError:
            raise _CallFailed(f"no answer in {CALL_TIMEOUT:g} s", turn) from None
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise _CallFailed("the server has ended", turn) from error
            return Result.of(error.message, failed=True, of_arguments=error.code in {INVALID_PARAMS, METHOD_NOT_FOUND})
        except Exception as error:
            raise _CallFailed(one_line(str(error) or repr(error), size=_MAX_ERROR_CHARACTERS), turn) from error
        texts = [getattr(part, "text", f"[{part.type}]") for part in result.content]
        if not texts and result.structured_content is not None:
            texts = [write_json(result.structured_content, default=str).decode()]
        return Result.of("\n".join(texts), failed=result.is_error)

    async def _run_session(self, *, task_status: TaskStatus[tuple["Client", anyio.CancelScope]]) -> None:
        """Keep a session open until its scope is cancelled. anyio requires that one task opens and closes it."""
        is_open, self._closed, self._executed = False, anyio.Event(), ()
        try:
            async with mcp_session(self._server) as (client, limit):
                limit.deadline, is_open = float("inf"), True
                task_status.started((client, limit))
                await anyio.sleep_forever()
        except ValueError:
            if not is_open:
                raise
        finally:
            self._closed.set()

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection[1].cancel()
            self._connection = None
            await self._closed.wait()


class _CallFailed(Exception):
    """Failure without a usable result: the problem, and the first turn to take back."""
