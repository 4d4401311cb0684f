"""Tasks of other packages: their scores compare like ours, and a request that fails is no failure of the model."""

import re
from pathlib import Path
from typing import Any

import pytest
from inspect_marks import INSPECT

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from refinesynth.errors import InputError
from refinesynth.evaluate import EvaluationResult, evaluate
from refinesynth.evaluate import task as tasks_of_inspect
from refinesynth.evaluate.comparing.eval_logs import read_evaluation
from refinesynth.evaluate.settings import TaskSettings
from refinesynth.evaluate.task import benchmark_task

pytestmark = INSPECT

NAME = "inspect:pack/talk"
SETTINGS = {"content_retries": 0, "retries": 0, "user.content_retries": 0, "user.retries": 0}


@solver
def conversation() -> Solver:
    """The model and a simulated user, who catches every error, as tau2's does."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        del generate
        for _ in range(10):
            try:
                for role in (None, "user"):
                    state.output = await get_model(role=role).generate(state.messages)
                    state.messages.append(state.output.message)
            except Exception:  # noqa: BLE001 - the fault that is tested
                continue
            if "stop" in state.output.completion:
                break
        return state

    return solve


@scorer(metrics=[accuracy()])
def by_id() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        del target
        return Score(
            value={"1": "C", "2": 0.25, "10": "I", "11": 7, "12": {"right": 1}, "13": "B"}[str(state.sample_id)],
            explanation="as its id says",
        )

    return score


def talk(*, ids: tuple[str, ...] = ("10", "2", "1")) -> Task:
    return Task(MemoryDataset([Sample(id=id_, input="Begin.") for id_ in ids]), solver=conversation(), scorer=by_id())


class Server:
    """Answers as the models `agent` and `user` do; counts requests, and refuses those of one model."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = ""

    async def __call__(self, **request: Any) -> dict[str, Any]:
        name = request["model"].rpartition("/")[2]
        self.asked.append(name)
        if name == self.broken:
            raise ValueError("no such thing")
        message = {"role": "assistant", "content": "stop" if name == "user" else "Here you are."}
        usage = {"prompt_tokens": 500, "completion_tokens": 100, "total_tokens": 600}
        return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments with which a task was made."""
    given: dict[str, Any] = {}

    def create(kind: str, name: str, **arguments: Any) -> Task:
        if (kind, name) != ("task", "pack/talk"):
            raise LookupError(name)
        given.update(arguments)
        return talk(**{"ids": tuple(arguments["ids"])} if "ids" in arguments else {})

    monkeypatch.setattr(tasks_of_inspect, "registry_create", create)
    return given


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    from refinesynth.client import litellm_sdk

    found = Server()
    monkeypatch.setattr(litellm_sdk, "completion", found)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    return found


def played(folder: Path, **asked: Any) -> EvaluationResult:
    given: dict[str, Any] = {"tasks": NAME, "user": "openai/user", "settings": SETTINGS, "output": folder, **asked}
    return evaluate("openai/agent", **given)


@pytest.mark.usefixtures("made")
def test_scores_of_such_a_task_compare_and_the_same_call_goes_on(server: Server, tmp_path: Path):
    first = played(tmp_path / "a", limit=2)
    assert sorted(server.asked) == ["agent", "agent", "user", "user"]
    (score,) = first.scores
    assert (score.task, score.instances, score.success, score.progress) == (NAME, 2, 0.5, 0.625)
    (log,) = read_evaluation(tmp_path / "a")
    assert log.ids == ("1", "2")  # the first ones, whatever order the task has
    assert log.settings["user"] == "openai/user"
    everything = played(tmp_path / "a")
    assert len(server.asked) == 6
    assert everything.scores[0].success == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="user='openai/user', and this is one with 'openai/agent'"):
        played(tmp_path / "a", user="openai/agent")
    with pytest.raises(InputError, match=r"user\.temperature=None, and this is one with 0\.7"):
        played(tmp_path / "a", settings={**SETTINGS, "user.temperature": 0.7})
    assert len(server.asked) == 6


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("broken", ["agent", "user"])
def test_a_failed_request_fails_the_sample_at_once_and_is_no_score(server: Server, tmp_path: Path, broken: str):
    server.broken = broken
    with pytest.raises(InputError, match="a request to a model failed"):
        played(tmp_path / "a", limit=1)
    assert server.asked.count(broken) <= 2  # one is tried again at most; not ten
    server.broken = ""
    assert played(tmp_path / "a", limit=1).scores[0].success == 1.0


@pytest.mark.usefixtures("made")
def test_models_of_an_evaluation_share_its_budget(server: Server, tmp_path: Path):
    # Each request is reserved with its worst case; the second model's is refused by what the first has spent.
    with pytest.raises(InputError, match="the budget of 1,300 tokens is spent"):
        played(tmp_path / "a", limit=1, max_tokens=400, budget="1300tok")
    assert server.asked == ["agent"]
    played(tmp_path / "a", limit=1, max_tokens=400, budget="90ktok")
    assert server.asked == ["agent", "agent", "user"]


def test_arguments_are_json_or_text(made: dict[str, Any]):
    task = benchmark_task("inspect", TaskSettings(argument='pack/talk?ids=["1"]&shuffle=false&split=base'))
    assert made == {"ids": ["1"], "shuffle": False, "split": "base"}
    assert (task.name, len(task.dataset)) == ("talk", 1)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("sample", "shown"), [("11", "7"), ("12", "{'right': 1}"), ("13", "'B'")])
def test_a_score_that_is_no_share_is_an_error_of_the_sample(server: Server, tmp_path: Path, sample: str, shown: str):
    with pytest.raises(InputError, match=f"the task's score is {re.escape(shown)}; expected a number from 0 to 1"):
        played(tmp_path / "a", tasks=f'inspect:pack/talk?ids=["{sample}"]')
    assert server.asked


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tasks": "inspect:talk"}, "expected inspect:PACKAGE/TASK"),
        ({"tasks": "inspect:pack/other"}, "Inspect knows no task 'pack/other'"),
        ({"tasks": f"{NAME}?shuffle"}, "bad query field"),
        ({"steps": 3}, "--steps is for benchmarks of refinesynth"),
        ({"user": "", "settings": {"user.timeout": 3}}, "name it by --user"),
        ({"model": "random"}, "is a control"),
        ({"tasks": "worlds:x", "settings": {}}, "--user is for tasks with a simulated user"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(asked: dict[str, Any], words: str, tmp_path: Path):
    given: dict[str, Any] = {"model": "openai/agent", "tasks": NAME, "user": "openai/user", **asked}
    with pytest.raises(InputError, match=words):
        evaluate(**given, output=tmp_path / "a")
    assert not (tmp_path / "a").exists()
