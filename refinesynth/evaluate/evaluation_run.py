"""Evaluation of a model on benchmarks and perturbations, into a resumable folder of Inspect logs."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rich
from inspect_ai import Epochs, Task, eval_set  # pyright: ignore[reportUnknownVariableType] - of a type of its own extra
from inspect_ai.hooks import Hooks, SampleEnd, hooks
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log, read_eval_log_sample_summaries
from inspect_ai.model import GenerateConfig, Model

from refinesynth.errors import InputError, StorageError
from refinesynth.evaluate.agent import PROVIDER as CONTROL
from refinesynth.evaluate.benchmarks import INSPECT, named
from refinesynth.evaluate.chat_form import FORMS, TrainedAs
from refinesynth.evaluate.environment_pool import EnvironmentFault
from refinesynth.evaluate.environments.perturbation import BENCHMARK as PERTURBED
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.inspect_models import open_model, set_budget
from refinesynth.evaluate.registry import TASKS, registered
from refinesynth.evaluate.settings import Evaluation, TaskSettings
from refinesynth.evaluate.task import MAX_TOKENS, placed, task_facts, task_name
from refinesynth.files.output_folder import FolderLock


@dataclass(frozen=True)
class Progress:
    model: str
    tools: bool
    """True if the model calls functions; False for text."""
    folder: Path
    """Folder of the logs."""
    steps: Mapping[str, int | None]
    """Task to the most actions of an attempt; None for tasks of other packages."""
    max_tokens: int
    """Most tokens of one answer."""
    finished: int
    """Finished episodes, those of earlier calls included."""
    of: int
    seconds_left: float | None
    """Estimate from the pace of this call; None before its first episode ends."""


def evaluate(asked: Evaluation, *, on_progress: Callable[[Progress], object] = lambda _: None) -> list[EvalLog]:
    """Evaluate and return the headers of the logs; raises what `refinesynth.evaluate.evaluate` raises.

    The same call again keeps finished samples and repeats failed ones.
    """
    # Inspect prints its hooks there, and at the end a message of success even after an interruption.
    console = rich.get_console()
    quiet, console.quiet = console.quiet, True
    try:
        return _evaluate(_formed(_sampled(asked)), on_progress)
    finally:
        console.quiet = quiet


def _evaluate(asked: Evaluation, on_progress: Callable[[Progress], object]) -> list[EvalLog]:
    wanted = named(asked.tasks)
    variants = perturbations(asked.perturb, {name for name, _ in wanted})
    if asked.folder.exists() and not asked.folder.is_dir():
        raise InputError(f"{str(asked.folder)!r} is a file; expected a folder for logs, by -o")
    model, roles = _models(asked, foreign=any(name == INSPECT for name, _ in wanted))
    arguments = [
        (name, _arguments(asked, argument, perturb))
        for name, argument in wanted
        for perturb in ("", *(variants if name == PERTURBED else ()))
    ]
    with placed(asked.environments, asked.pythons) as pools:
        tasks = [(TASKS.get(name) or registered(name))(**options) for name, options in arguments]
        # Checked after the data of all tasks is read, because an import takes seconds.
        for pool in pools:
            try:
                pool.check(solves=str(model) == f"{CONTROL}/oracle")
            except EnvironmentFault as fault:
                where = f"the environment {pool.benchmark.environment!r}"
                raise InputError(f"{where} cannot be opened: {fault}; correct what the benchmark names") from fault
        try:
            asked.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{str(asked.folder)!r} cannot be made: {error.strerror}") from error
        with FolderLock(asked.folder, work="evaluation"):
            _refuse_another(asked, model, arguments)
            token = _report.set(_reporter(asked, model, tasks, on_progress))
            try:
                return _evaluated(asked, model, roles, tasks)
            finally:
                _report.reset(token)


def _models(asked: Evaluation, *, foreign: bool) -> tuple[Model, dict[str, Model]]:
    """Open the model and those of other roles, which share the budget; `foreign`: there are tasks of other packages."""
    settings = {name: value for name, value in asked.settings.items() if not name.startswith(_OF_USER)}
    of_user = {name.removeprefix(_OF_USER): asked.settings[name] for name in asked.settings.keys() - settings.keys()}
    if (asked.user or of_user) and not foreign:
        raise InputError(
            f"--user is for tasks with a simulated user, {INSPECT}:PACKAGE/TASK; name one in --tasks, or leave it out"
        )
    if of_user and not asked.user:
        raise InputError(
            f"--set {_OF_USER}{next(iter(of_user))} is for the model that plays the user; name it by --user"
        )
    model = open_model(asked.model, temperature=asked.temperature, settings=settings, tools=asked.form in FORMS)
    roles = {"user": open_model(asked.user, temperature=0.0, settings=of_user)} if asked.user else {}
    control = next((one for one in (model, *roles.values()) if foreign and str(one).startswith(f"{CONTROL}/")), None)
    if control is not None:
        raise InputError(f"{str(control)!r} is a control, which plays benchmarks of refinesynth alone; give a model")
    set_budget([model, *roles.values()], asked.budget)
    return model, roles


_OF_USER = "user."

_report: ContextVar[Callable[[], None] | None] = ContextVar("report", default=None)


class _Finished(Hooks):
    """Hook that counts the episodes that end without an error."""

    def enabled(self) -> bool:
        return _report.get() is not None

    async def on_sample_end(self, data: SampleEnd) -> None:
        report = _report.get()
        if report is not None and data.sample.error is None:
            report()


hooks(name="refinesynth", description="The progress of an evaluation.")(_Finished)


def _reporter(
    asked: Evaluation, model: Model, tasks: Sequence[Task], on_progress: Callable[[Progress], object]
) -> Callable[[], None]:
    """Report the state before the first episode; the returned function reports it after each."""
    total = sum(len(task.dataset[: asked.limit]) for task in tasks) * asked.epochs
    before = sum(_finished(asked.folder, task, asked) for task in tasks)
    steps = {task.name: task_facts(task.metadata).get("steps") for task in tasks}
    now = Progress(
        str(model), asked.form in FORMS, asked.folder, steps, asked.max_tokens or MAX_TOKENS, before, total, None
    )
    on_progress(now)
    begun = time.monotonic()

    def report() -> None:
        nonlocal now
        finished = min(now.finished + 1, total)
        pace = (time.monotonic() - begun) / max(1, finished - before)
        now = replace(now, finished=finished, seconds_left=pace * (total - finished))
        on_progress(now)

    return report


def _finished(folder: Path, task: Task, asked: Evaluation) -> int:
    wanted = {sample.id for sample in task.dataset[: asked.limit]}
    episodes: set[tuple[str | int, int]] = set()
    for info in list_eval_logs(str(folder)):
        if info.task.rpartition("/")[2] == task.name.replace("_", "-"):
            summaries = read_eval_log_sample_summaries(info)
            episodes |= {(one.id, one.epoch) for one in summaries if one.scores and not one.error}
    return sum(id_ in wanted and epoch <= asked.epochs for id_, epoch in episodes)


def _evaluated(asked: Evaluation, model: Model, roles: dict[str, Model], tasks: list[Task]) -> list[EvalLog]:
    controlled = str(model).startswith(f"{CONTROL}/")
    config = GenerateConfig(temperature=asked.temperature, max_tokens=asked.max_tokens, seed=asked.seed)
    _, logs = eval_set(
        tasks,
        log_dir=str(asked.folder),
        log_dir_allow_dirty=True,
        model=model,
        model_roles=dict(roles),
        limit=asked.limit,
        epochs=Epochs(asked.epochs, ["mean"] if asked.epochs == 1 else ["mean", "max"]),
        # An immediate retry would fail in the same way; the same command retries when the cause is gone.
        retry_attempts=0,
        retry_immediate=False,
        max_tasks=1,
        # A control plays faster than its events can be written for live viewers.
        log_realtime=not controlled,
        # The mean of the finished episodes would be biased towards quick successes.
        score_display=False,
        display="none",
        ctl_server=False,
        **config.model_dump(exclude_none=True),
    )
    if len(logs) < len(tasks) or any(log.status == "cancelled" for log in logs):
        # Inspect catches KeyboardInterrupt.
        raise KeyboardInterrupt
    return logs


def perturbations(text: str, benchmarks: Collection[str]) -> list[str]:
    """Parse `P1`, `P2,P4` or `P1..P5`; raises InputError for unknown names, or without the benchmark that has them."""
    names: list[str] = []
    known = list(PERTURBATIONS)
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dots, last = part.partition("..")
        ends = (first, last if dots else first)
        if any(end not in known for end in ends) or known.index(ends[0]) > known.index(ends[1]):
            raise InputError(f"--perturb {text!r}: {part!r} is none of {', '.join(known)}, nor a range such as P1..P5")
        names += known[known.index(ends[0]) : known.index(ends[1]) + 1]
    if names and PERTURBED not in benchmarks:
        raise InputError(
            f"--perturb {names[0]} is for {PERTURBED}, which is not among the tasks; name it, or leave it out"
        )
    return list(dict.fromkeys(names))


def _arguments(asked: Evaluation, argument: str, perturb: str) -> dict[str, Any]:
    """Arguments of a task: only settings that decide its results, because logs with equal arguments are resumed."""
    data = None if asked.data is None else str(asked.data.resolve())
    values = {name: getattr(asked, name) for name in TaskSettings.model_fields}
    values |= {"data": data, "argument": argument, "perturb": perturb}
    usual = TaskSettings()
    return {name: value for name, value in values.items() if name == "compat" or value != getattr(usual, name)}


def _formed(asked: Evaluation) -> Evaluation:
    """Resolve the form: `tools`, `parallel_tools`, or `auto` for text, as in logs from before forms could be chosen."""
    form = TrainedAs.of(asked.model).form if asked.form == "auto" else asked.form
    values: dict[str, Any] = {**dict(asked), "form": form if form in FORMS else "auto"}
    return Evaluation(**values)


def _sampled(asked: Evaluation) -> Evaluation:
    """Move sampling options from `settings` to their fields, whose values would override `settings`."""
    sampling = {name: asked.settings[name] for name in ("max_tokens", "temperature") if name in asked.settings}
    for name, value in sampling.items():
        if isinstance(value, bool) or not isinstance(value, int if name == "max_tokens" else int | float):
            raise InputError(f"{name} is {value!r}; expected a number")
        if getattr(asked, name) not in (None, 0.0, value):
            raise InputError(f"{name} is both {getattr(asked, name)} and {value}; give it once")
    rest = {name: value for name, value in asked.settings.items() if name not in sampling}
    values: dict[str, Any] = {**dict(asked), **sampling, "settings": rest}
    return Evaluation(**values)


def _refuse_another(asked: Evaluation, model: Model, tasks: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise InputError if the folder holds logs of another model, or of these tasks with other settings."""
    sampling = {"temperature": asked.temperature, "max_tokens": asked.max_tokens or MAX_TOKENS, "seed": asked.seed}
    mine = {
        _key(name, options.get("perturb", ""), options.get("argument", "")): {**options, **sampling}
        for name, options in tasks
    }
    for info in list_eval_logs(str(asked.folder)):
        header = read_eval_log(info, header_only=True)
        where = f"{str(asked.folder)!r} holds an evaluation of"
        if header.eval.model != str(model):
            same = header.eval.model.partition("/")[2] == str(model).partition("/")[2]
            hint = ", or the --form of that one" if same else ""
            raise InputError(f"{where} {header.eval.model!r}, and this is one of {str(model)!r}; give another -o{hint}")
        passed = header.eval.task_args_passed
        foreign = task_facts(header.eval.metadata).get("benchmark") == INSPECT
        name = header.eval.task.rpartition("/")[2]
        wanted = mine.get(_key(INSPECT, "", passed.get("argument", "")) if foreign else name)
        if wanted is None:
            continue
        config = header.plan.config
        recorded = {**passed, **{name: getattr(config, name) for name in sampling}}
        # Inspect records the address apart from the model's arguments.
        recorded |= {**header.eval.model_args, "base_url": header.eval.model_base_url}
        for user in (header.eval.model_roles or {}).values():
            if not isinstance(user, list):  # ours has one model
                recorded |= {f"{_OF_USER}{name}": value for name, value in user.args.items()}
                recorded[f"{_OF_USER}base_url"] = user.base_url
        wanted = {**wanted, **asked.settings}
        for name in sorted({*wanted, *recorded}):
            if name.removeprefix(_OF_USER) in {"do_sample", "model_path", "tokenizer_path"}:
                continue
            if recorded.get(name) != wanted.get(name):
                raise InputError(
                    f"{where} {header.eval.task} with {name}={recorded.get(name)!r}, and this is one with {wanted.get(name)!r}; "
                    "give another -o"
                )


def _key(benchmark: str, perturb: str, argument: str) -> str:
    """Name of a task in logs; for tasks of other packages, whose names are not unique, the whole argument."""
    return f"{INSPECT}:{argument}" if benchmark == INSPECT else task_name(benchmark, perturb, argument)
