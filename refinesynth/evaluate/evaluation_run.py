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
from inspect_ai.log import EvalLog, list_eval_logs
from inspect_ai.model import GenerateConfig, Model

from refinesynth.client.budget.budget import Budget
from refinesynth.errors import InputError, StorageError
from refinesynth.evaluate.agent import PROVIDER as CONTROL
from refinesynth.evaluate.benchmarks import INSPECT, parse_tasks
from refinesynth.evaluate.chat_form import FORMS, TrainedAs
from refinesynth.evaluate.comparing.eval_logs import ReadLog, read_log
from refinesynth.evaluate.environment_pool import EnvironmentFault
from refinesynth.evaluate.environments.perturbation import BENCHMARK as PERTURBED
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.inspect_models import is_backend, open_model, set_budget, weights_digest
from refinesynth.evaluate.registry import TASKS, registered
from refinesynth.evaluate.settings import Evaluation, TaskSettings
from refinesynth.evaluate.task import FACTS, MAX_TOKENS, environment_pools, task_facts, task_key
from refinesynth.files.output_folder import FolderLock
from refinesynth.run.run_folder import CONFIG, holds_run


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
    total: int
    seconds_left: float | None
    """Estimate from the pace of this call; None before its first episode ends."""


def evaluate(setup: Evaluation, *, on_progress: Callable[[Progress], object] = lambda _: None) -> list[EvalLog]:
    """Evaluate and return the headers of the logs; raises what `refinesynth.evaluate.evaluate` raises.

    The same call again keeps finished samples and repeats failed ones.
    """
    # Inspect prints its hooks there, and at the end a message of success even after an interruption.
    console = rich.get_console()
    was_quiet, console.quiet = console.quiet, True
    try:
        _check_settings(setup)
        return _evaluate(_with_form(setup), on_progress)
    finally:
        console.quiet = was_quiet


def _evaluate(setup: Evaluation, on_progress: Callable[[Progress], object]) -> list[EvalLog]:
    selected = parse_tasks(setup.tasks)
    variants = perturbations(setup.perturb, {name for name, _ in selected})
    if setup.folder.exists() and not setup.folder.is_dir():
        raise InputError(f"{str(setup.folder)!r} is a file; expected a folder for logs, by -o")
    if (setup.folder / CONFIG).is_file() and holds_run(setup.folder):
        raise InputError(f"{str(setup.folder)!r} is the folder of a run; give another -o for the logs")
    model, roles = _models(setup, foreign=any(name == INSPECT for name, _ in selected))
    arguments = [
        (name, _arguments(setup, argument, perturb))
        for name, argument in selected
        for perturb in ("", *(variants if name == PERTURBED else ()))
    ]
    with environment_pools(setup.environments, setup.pythons) as pools:
        tasks = [(TASKS.get(name) or registered(name))(**options) for name, options in arguments]
        # Checked after the data of all tasks is read, because an import takes seconds.
        for pool in pools:
            try:
                pool.check(needs_solutions=str(model) == f"{CONTROL}/oracle")
            except EnvironmentFault as fault:
                subject = f"the environment {pool.benchmark.environment!r}"
                raise InputError(f"{subject} cannot be opened: {fault}; correct what the benchmark names") from fault
        try:
            setup.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{str(setup.folder)!r} cannot be made: {error.strerror}") from error
        with FolderLock(setup.folder, work="evaluation"):
            weights = {role: digest for role, item in {"": model, **roles}.items() if (digest := weights_digest(item))}
            for task in tasks if weights else ():
                task.metadata = {**(task.metadata or {}), FACTS: {**task_facts(task.metadata), _WEIGHTS: weights}}
            logs = [read_log(info) for info in list_eval_logs(str(setup.folder))]
            _check_same_evaluation(setup, model, arguments, weights, [header for header, _ in logs])
            set_budget([model, *roles.values()], setup.budget, setup.folder, logs)
            done = sum(_count_finished(logs, task, setup) for task in tasks)
            token = _report.set(_reporter(setup, model, tasks, on_progress, done))
            try:
                return _run_tasks(setup, model, roles, tasks)
            finally:
                _report.reset(token)


def _models(setup: Evaluation, *, foreign: bool) -> tuple[Model, dict[str, Model]]:
    """Open the model and those of other roles; `foreign`: there are tasks of other packages."""
    settings = {name: value for name, value in setup.settings.items() if not name.startswith(_USER)}
    user_args = {name.removeprefix(_USER): setup.settings[name] for name in setup.settings.keys() - settings.keys()}
    if (setup.user or user_args) and not foreign:
        raise InputError(
            f"--user is for tasks with a simulated user, {INSPECT}:PACKAGE/TASK; name one in --tasks, or leave it out"
        )
    if user_args and not setup.user:
        raise InputError(
            f"--set {_USER}{next(iter(user_args))} is for the model that plays the user; name it by --user"
        )
    model = open_model(setup.model, temperature=setup.temperature, settings=settings, tools=setup.form in FORMS)
    roles = {"user": open_model(setup.user, temperature=0.0, settings=user_args)} if setup.user else {}
    control = next((item for item in (model, *roles.values()) if foreign and str(item).startswith(f"{CONTROL}/")), None)
    if control is not None:
        raise InputError(f"{str(control)!r} is a control, which plays benchmarks of refinesynth alone; give a model")
    if Budget.of(setup.budget) is not None and not any(is_backend(item) for item in (model, *roles.values())):
        raise InputError(f"--budget is for models that are paid for, not for {str(model)!r}; leave it out")
    return model, roles


_USER = "user."
_WEIGHTS = "weights"
"""Fact of a task: role ("" for the evaluated model) to `weights_digest`, for models in local folders."""

_report: ContextVar[Callable[[], None] | None] = ContextVar("report", default=None)


class _ProgressHook(Hooks):
    """Hook that counts the episodes that end without an error."""

    def enabled(self) -> bool:
        return _report.get() is not None

    async def on_sample_end(self, data: SampleEnd) -> None:
        report = _report.get()
        if report is not None and data.sample.error is None:
            report()


hooks(name="refinesynth", description="The progress of an evaluation.")(_ProgressHook)


def _reporter(
    setup: Evaluation, model: Model, tasks: Sequence[Task], on_progress: Callable[[Progress], object], done: int
) -> Callable[[], None]:
    """Report the state before the first episode; the returned function reports it after each."""
    total = sum(len(task.dataset[: setup.limit]) for task in tasks) * setup.epochs
    steps = {task.name: task_facts(task.metadata).get("steps") for task in tasks}
    progress = Progress(
        str(model), setup.form in FORMS, setup.folder, steps, setup.max_tokens or MAX_TOKENS, done, total, None
    )
    on_progress(progress)
    started = time.monotonic()

    def report() -> None:
        nonlocal progress
        finished = min(progress.finished + 1, total)
        pace = (time.monotonic() - started) / max(1, finished - done)
        progress = replace(progress, finished=finished, seconds_left=pace * (total - finished))
        on_progress(progress)

    return report


def _count_finished(logs: Sequence[ReadLog], task: Task, setup: Evaluation) -> int:
    sample_ids = {sample.id for sample in task.dataset[: setup.limit]}
    episodes: set[tuple[str | int, int]] = set()
    for header, summaries in logs:
        if task_key(header.eval.metadata) == task_key(task.metadata):
            episodes |= {(item.id, item.epoch) for item in summaries if item.scores and not item.error}
    return sum(id_ in sample_ids and epoch <= setup.epochs for id_, epoch in episodes)


def _run_tasks(setup: Evaluation, model: Model, roles: dict[str, Model], tasks: list[Task]) -> list[EvalLog]:
    is_control = str(model).startswith(f"{CONTROL}/")
    config = GenerateConfig(temperature=setup.temperature, max_tokens=setup.max_tokens, seed=setup.seed)
    _, logs = eval_set(
        tasks,
        log_dir=str(setup.folder),
        log_dir_allow_dirty=True,
        model=model,
        model_roles=dict(roles),
        limit=setup.limit,
        epochs=Epochs(setup.epochs, ["mean"] if setup.epochs == 1 else ["mean", "max"]),
        # An immediate retry would fail in the same way; the same command retries when the cause is gone.
        retry_attempts=0,
        retry_immediate=False,
        max_tasks=1,
        # A control plays faster than its events can be written for live viewers.
        log_realtime=not is_control,
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
        bounds = (first, last if dots else first)
        if any(bound not in known for bound in bounds) or known.index(bounds[0]) > known.index(bounds[1]):
            raise InputError(f"--perturb {text!r}: {part!r} is none of {', '.join(known)}, nor a range such as P1..P5")
        names += known[known.index(bounds[0]) : known.index(bounds[1]) + 1]
    if names and PERTURBED not in benchmarks:
        raise InputError(
            f"--perturb {names[0]} is for {PERTURBED}, which is not among the tasks; name it, or leave it out"
        )
    return list(dict.fromkeys(names))


def _arguments(setup: Evaluation, argument: str, perturb: str) -> dict[str, Any]:
    """Arguments of a task: only settings that decide its results, because logs with equal arguments are resumed."""
    data = None if setup.data is None else str(setup.data.resolve())
    values = {name: getattr(setup, name) for name in TaskSettings.model_fields}
    values |= {"data": data, "argument": argument, "perturb": perturb}
    defaults = TaskSettings()
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _with_form(setup: Evaluation) -> Evaluation:
    """Resolve the form: `tools`, `parallel_tools`, or `auto` for text, as in logs from before forms could be chosen."""
    form = TrainedAs.of(setup.model).form if setup.form == "auto" else setup.form
    return setup.model_copy(update={"form": form if form in FORMS else "auto"})


def _check_settings(setup: Evaluation) -> None:
    """Raise InputError for settings of the model whose fields would override them."""
    if fields := {"max_tokens", "temperature"} & setup.settings.keys():
        name = min(fields)
        raise InputError(f"{name} is a setting of the evaluation; give --{name.replace('_', '-')} ({name}=) instead")


def _check_same_evaluation(
    setup: Evaluation,
    model: Model,
    tasks: Sequence[tuple[str, Mapping[str, Any]]],
    weights: Mapping[str, str],
    headers: Sequence[EvalLog],
) -> None:
    """Raise InputError if the folder holds logs of another model or other weights, or of these tasks with other settings."""
    sampling = {"temperature": setup.temperature, "max_tokens": setup.max_tokens or MAX_TOKENS, "seed": setup.seed}
    requested = {
        (name, options.get("argument", ""), options.get("perturb", "")): {**options, **sampling}
        for name, options in tasks
    }
    for header in headers:
        start = f"{str(setup.folder)!r} holds an evaluation of"
        if header.eval.model != str(model):
            same_name = header.eval.model.partition("/")[2] == str(model).partition("/")[2]
            hint = ", or the --form of that one" if same_name else ""
            raise InputError(f"{start} {header.eval.model!r}, and this is one of {str(model)!r}; give another -o{hint}")
        passed = header.eval.task_args_passed
        known_weights = task_facts(header.eval.metadata).get(_WEIGHTS, {})
        if any(weights.get(role, digest) != digest for role, digest in known_weights.items()):
            raise InputError(f"{start} other weights: the model's files have changed since; give another -o for these")
        expected = requested.get(task_key(header.eval.metadata))
        if expected is None:
            continue
        config = header.plan.config
        recorded = {**passed, **{name: getattr(config, name) for name in sampling}}
        # Inspect records the address apart from the model's arguments.
        recorded |= {**header.eval.model_args, "base_url": header.eval.model_base_url}
        for user in (header.eval.model_roles or {}).values():
            if not isinstance(user, list):  # ours has one model
                recorded |= {f"{_USER}{name}": value for name, value in user.args.items()}
                recorded[f"{_USER}base_url"] = user.base_url
        expected = {**expected, **setup.settings}
        for name in sorted({*expected, *recorded}):
            if name.removeprefix(_USER) in {"do_sample", "model_path", "tokenizer_path"}:
                continue
            if recorded.get(name) != expected.get(name):
                raise InputError(
                    f"{start} {header.eval.task} with {name}={recorded.get(name)!r}, and this is one with {expected.get(name)!r}; "
                    "give another -o"
                )
