"""Audit of flags: a sample of turns of a run or of labelled data, the page that asks about them, raters' agreement.

The page shows one turn after another, takes right or wrong by a key, and appends the answer to a file.
"""

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from heapq import heappush, heappushpop
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import anyio
import orjson
from aiohttp import web
from pydantic import BaseModel, JsonValue, ValidationError, model_validator

from refinesynth.backends import Backend, Role
from refinesynth.client import close_models, open_model
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.price_table import price_of
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.session import Session
from refinesynth.errors import EpisodeAbandoned, InputError, RunFolderError, StorageError
from refinesynth.files.atomic_write import exclusive_access, refuse_file_of_run
from refinesynth.outcome import Cost
from refinesynth.prompts import Prompts
from refinesynth.report.html_page import render_page, script_data, shorten
from refinesynth.roles.verifier import Judge
from refinesynth.run import RunFolder
from refinesynth.run.jsonl import LineWriter, cut, last_line_end, read_lines
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory, Usage, explain

_MAX_CONCURRENT: Final = 16
"""Concurrent requests to a judge if its backend sets no bound; the rate limiter adapts below it."""


@dataclass(frozen=True, slots=True)
class AuditedTurn:
    """One action of an agent with a verdict, which raters do not see."""

    id: str
    """The trajectory's id, `#` and the turn's number, from 1."""
    cell: str
    """`not flagged` or the kind of mistake; for labelled data, the label."""
    right: bool
    """The verdict: False for a flagged turn."""
    content: Callable[[], Mapping[str, JsonValue]]
    """Returns `task`, `history` and `turn` as raters see them."""


def turns_of_run(folder: RunFolder) -> Iterator[AuditedTurn]:
    """Yield the player's turns of the accepted trajectories that the DungeonMaster answered."""
    for trajectory in folder.trajectories():
        for index, (turn, answer) in enumerate(pairwise(trajectory.turns)):
            if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn):
                kind = answer.mistake_kind
                cell = "not flagged" if kind is None else kind.value
                content = partial(_turn_content, trajectory, index)
                yield AuditedTurn(f"{trajectory.id}#{index + 1}", cell, kind is None, content)


def _turn_content(trajectory: Trajectory, index: int) -> dict[str, JsonValue]:
    def plain(turn: PlayerTurn | DungeonMasterTurn) -> dict[str, JsonValue]:
        if isinstance(turn, PlayerTurn):
            return {"thought": turn.thought, "action": turn.action}
        return {"observation": turn.observation}

    task = trajectory.script.imagined().model_dump(mode="json")
    return {"task": task, "history": [*map(plain, trajectory.turns[:index])], "turn": plain(trajectory.turns[index])}


class _Labelled(BaseModel, frozen=True):
    """Part of a record of AgentProcessBench: a chat with a label for each assistant message."""

    messages: list[dict[str, JsonValue]]
    tools: JsonValue = None
    step_labels: dict[int, Literal[-1, 0, 1]]
    """Index of a message to its label."""

    @model_validator(mode="after")
    def _labels_have_messages(self) -> Self:
        if unknown := [index for index in self.step_labels if not 0 <= index < len(self.messages)]:
            raise ValueError(f"step_labels: there is no message {unknown[0]}")
        return self


def labelled_turns(path: Path) -> list[AuditedTurn]:
    """Return the labelled messages of a JSONL file: +1 (correct) and 0 (neutral) count as right, -1 as wrong.

    Raises:
        InputError: The file is missing, or a line is not as AgentProcessBench writes it.
    """
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; give a JSONL file with messages and step_labels")
    turns: list[AuditedTurn] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = _Labelled.model_validate(orjson.loads(line))
        except ValueError as error:
            raise InputError(f"line {number} of {str(path)!r} has no labelled steps: {explain(error)}") from error
        for index, label in sorted(record.step_labels.items()):
            cell = {1: "correct", 0: "neutral", -1: "erroneous"}[label]
            content = partial(_message_content, record.messages, record.tools, index)
            turns.append(AuditedTurn(f"{path.stem}:{number}#{index + 1}", cell, label >= 0, content))
    return turns


def _message_content(messages: Sequence[dict[str, JsonValue]], tools: JsonValue, index: int) -> dict[str, JsonValue]:
    start = next(n for n, message in enumerate(messages) if n == index or message.get("role") == "assistant")
    task: JsonValue = {"tools": tools, "messages": [*messages[:start]]}
    return {"task": task, "history": [*messages[start:index]], "turn": messages[index]}


def sample_turns(turns: Iterable[AuditedTurn], per_cell: int, seed: int) -> list[AuditedTurn]:
    """Return at most `per_cell` turns of each cell, in random order.

    The rank of a turn depends on its id and the seed only; a larger sample therefore contains a smaller one.
    """
    cells: dict[str, list[tuple[int, int, AuditedTurn]]] = {}
    for number, turn in enumerate(turns):
        rank = int.from_bytes(blake2b(f"{seed}/{turn.id}".encode(), digest_size=8).digest())
        heap = cells.setdefault(turn.cell, [])
        # The largest rank is at the root; numbers differ, so turns are not compared.
        if len(heap) < per_cell:
            heappush(heap, (-rank, number, turn))
        else:
            heappushpop(heap, (-rank, number, turn))
    return [turn for _, _, turn in sorted((entry for heap in cells.values() for entry in heap), reverse=True)]


class Rating(BaseModel, frozen=True):
    """Verdict of a rater on a turn: one line of the file of answers."""

    turn: str
    rater: str
    right: bool | None = None
    """Verdict; None for requests without a usable answer, whose cost counts."""
    reason: str = ""
    """Reason that a model gave; empty for people."""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0


@dataclass
class Answers:
    """File of answers, open for appending; a later answer of a rater on the same turn replaces the earlier one."""

    path: Path
    by_rater: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])
    """Rater to turn id to verdict."""
    paid: dict[str, Cost] = field(default_factory=dict[str, Cost])

    @classmethod
    def read(cls, path: Path) -> "Answers":
        """Read a file; a missing file has no answers. Raises RunFolderError for an invalid line."""
        answers = cls(path)
        for number, line in enumerate(read_lines(path), start=1):
            try:
                answers._add(Rating.model_validate_json(line))
            except ValidationError as error:
                raise RunFolderError(f"line {number} of {str(path)!r} is no answer: {explain(error)}") from error
        return answers

    @contextmanager
    def open_for_writing(self) -> Generator[None]:
        """Open the file for `append`.

        Raises:
            StorageError: The file cannot be written.
            InputError: Another process writes the file, or it is a file of a run.
        """
        refuse_file_of_run(self.path)
        with exclusive_access(self.path):
            cut(self.path, end=last_line_end(self.path))
            self._writer = LineWriter(self.path)
            try:
                yield
            finally:
                self._writer.close()

    def append(self, answer: Rating) -> None:
        """Append an answer; raises StorageError."""
        self._writer.write(answer.model_dump_json(exclude_defaults=True).encode())
        self._add(answer)

    def _add(self, answer: Rating) -> None:
        if answer.right is not None:
            self.by_rater.setdefault(answer.rater, {})[answer.turn] = answer.right
        spent = self.paid.get(answer.rater, Cost())
        self.paid[answer.rater] = spent + Cost(usage=answer.usage, cost_usd=answer.cost_usd)


async def judge_turns(
    turns: Iterable[AuditedTurn],
    backend: Backend,
    answers: Answers,
    *,
    budget: Budget | None = None,
) -> int:
    """Let a model rate the turns that it has not rated yet; each answer is appended to the file when it arrives, as is the
    cost of requests without a usable answer.

    `budget` is for all answers of this model in the file. Returns the number of turns without a usable answer.

    Raises:
        RunStopped: The model cannot be used, or the budget is spent.
        StorageError: The file of answers cannot be written.
    """
    rater, failed, errors = backend.label, 0, list[Exception]()
    tracker = BudgetTracker(budget, spent=answers.paid.get(rater), prices=[price_of(backend)])
    model, prompts = open_model(backend), Prompts()
    limit = anyio.CapacityLimiter(backend.max_in_flight or _MAX_CONCURRENT)

    async def rate(index: int, turn: AuditedTurn) -> None:
        nonlocal failed
        session = Session(id=turn.id, index=index, tracker=tracker, bounded=frozenset({Role.JUDGE}))
        async with limit:
            try:
                right, reason = None, ""
                try:
                    judge = Judge(session.model(Role.JUDGE, model), prompts)
                    right, reason = await judge.rate(**turn.content())
                finally:
                    usage, cost = session.spent.usage, session.spent.cost_usd
                    if usage.requests:
                        answers.append(
                            Rating(turn=turn.id, rater=rater, right=right, reason=reason, usage=usage, cost_usd=cost)
                        )
            except EpisodeAbandoned:
                failed += 1
            except Exception as error:  # noqa: BLE001 - raised below: out of a task group it would come wrapped
                errors.append(error)
                tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for index, turn in enumerate(turns):
                if turn.id not in answers.by_rater.get(rater, ()):
                    tasks.start_soon(rate, index, turn)
    finally:
        await close_models([model])
    if errors:
        raise errors[0]
    return failed


_RESAMPLES: Final = 2_000


class Agreement(NamedTuple):
    """Agreement of two raters over the turns that both rated."""

    turns: int
    agreed: int
    kappa: float | None
    """Cohen's kappa; None without common turns, or if both raters gave the same answer to all of them."""
    low: float | None
    """Lower bound of the 95 % percentile bootstrap interval over whole trajectories."""
    high: float | None


def agreement(first: Mapping[str, bool], second: Mapping[str, bool], *, seed: int = 0) -> Agreement:
    """Compare verdicts by turn id; turns of one trajectory, the part of an id before `#`, are drawn together."""
    clusters: dict[str, list[int]] = {}
    for turn in sorted(first.keys() & second.keys()):
        # Counts of: both wrong, only the second right, only the first right, both right.
        cluster = clusters.setdefault(turn.rpartition("#")[0], [0, 0, 0, 0])
        cluster[2 * first[turn] + second[turn]] += 1
    counts = list(clusters.values())
    totals = _summed(counts)
    rng = random.Random(seed)
    samples = (_kappa(_summed(rng.choices(counts, k=len(counts)))) for _ in range(_RESAMPLES if counts else 0))
    kappas = sorted(kappa for kappa in samples if kappa is not None)
    low, high = (kappas[int(0.025 * len(kappas))], kappas[int(0.975 * (len(kappas) - 1))]) if kappas else (None, None)
    return Agreement(sum(totals), totals[0] + totals[3], _kappa(totals), low, high)


def _summed(counts: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*counts, strict=True)] or [0] * 4


def _kappa(counts: Sequence[int]) -> float | None:
    a, b, c, d = counts
    n = a + b + c + d
    by_chance = (a + b) * (a + c) + (c + d) * (b + d)
    return None if n * n == by_chance else (n * (a + d) - by_chance) / (n * n - by_chance)


class _RatingBody(BaseModel, frozen=True):
    turn: str
    right: bool


def audit_app(turns: Sequence[AuditedTurn], answers: Answers, rater: str) -> web.Application:
    """Return the application. It gives ratings to `answers`, whose file must be open; the page holds no verdicts."""
    ids = {turn.id for turn in turns}

    async def page(_request: web.Request) -> web.Response:
        ratings = answers.by_rater.get(rater, {})
        data = [{"id": turn.id, "given": ratings.get(turn.id), "parts": [*_parts(turn.content())]} for turn in turns]
        return web.Response(
            text=render_page("audit.html.jinja", rater=rater, data=script_data(data)), content_type="text/html"
        )

    async def answer(request: web.Request) -> web.Response:
        # Browsers let a page of another origin send this content type only with the server's consent (CORS).
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        try:
            rating = _RatingBody.model_validate_json(await request.read())
        except ValidationError as error:
            raise web.HTTPBadRequest(text="expected an object with turn and right") from error
        if rating.turn not in ids:
            raise web.HTTPNotFound(text="this turn is not in the sample")
        try:
            answers.append(Rating(turn=rating.turn, rater=rater, right=rating.right))
        except StorageError as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from error
        return web.Response(status=204)

    @web.middleware
    async def refuse_other_hosts(request: web.Request, handler: Any) -> web.StreamResponse:
        # The host name of another site may resolve to this address (DNS rebinding).
        if request.url.host not in {"127.0.0.1", "localhost"}:
            raise web.HTTPForbidden
        return await handler(request)

    app = web.Application(middlewares=[refuse_other_hosts])
    app.router.add_get("/", page)
    app.router.add_post("/answer", answer)
    return app


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the labelled texts of a turn: task, world, history, and the turn itself last."""
    task = content["task"]
    if "goal" in task:
        yield "goal", shorten(task["goal"])
        yield "place", shorten(task["introduction"].strip())
        yield "actions", shorten("\n".join(action["name"] for action in task["actions"]))
        world = {name: task[name] for name in ("environment", "completion_conditions", "actions")}
    else:
        yield from map(_speaker_and_text, task["messages"])
        world = {"tools": task["tools"]}
    yield "world", shorten(write_json(world, option=orjson.OPT_INDENT_2).decode())
    yield from map(_speaker_and_text, content["history"])
    yield "turn", _speaker_and_text(content["turn"])[1]


def _speaker_and_text(entry: dict[str, JsonValue]) -> tuple[str, str]:
    # A message of labelled data may have these keys among others.
    if entry.keys() == {"observation"}:
        return "environment", shorten(str(entry["observation"]))
    if entry.keys() == {"thought", "action"}:
        return "player", shorten(f"{entry['thought']}\n> {entry['action']}")
    texts = [
        part if isinstance(part, str) else write_json(part).decode()
        for part in (entry.get("content"), entry.get("tool_calls"))
        if part
    ]
    return str(entry.get("role")), shorten("\n".join(texts))
