"""Evaluations of grounded worlds from one end to the other: through Inspect, with controls and models that say what the
test wants.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from chaos import BENCHMARK as CHAOS
from inspect_marks import INSPECT
from samples import SHED_GROUNDED, dm, player, trajectory

from refinesynth.chat import render_task, render_turns
from refinesynth.errors import InputError, RunFolderError
from refinesynth.evaluate import benchmarks
from refinesynth.evaluate.environments.environment import BadInstance, Benchmark, Instance, Source
from refinesynth.evaluate.environments.worlds import GroundedWorld
from refinesynth.files.output_folder import FolderLock
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, PlayerTurn, Trajectory
from refinesynth.world import World

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai import Task, eval  # noqa: A004 # pyright: ignore[reportUnknownVariableType]
from inspect_ai.log import EvalLog, EvalSample, read_eval_log
from inspect_ai.model import ChatMessage, Model, ModelOutput, ModelUsage, get_model

from refinesynth.evaluate import evaluation_run
from refinesynth.evaluate.agent import first_message
from refinesynth.evaluate.chat_form import ReactForm
from refinesynth.evaluate.episode_counts import SCORE
from refinesynth.evaluate.evaluation_run import Progress, evaluate
from refinesynth.evaluate.settings import Evaluation, TaskSettings
from refinesynth.evaluate.task import benchmark_task

pytestmark = INSPECT

Says = Callable[[list[ChatMessage]], str]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of trajectories in one world that can be executed and one that cannot."""
    file = tmp_path_factory.mktemp("worlds") / "trajectories.jsonl"
    records = [trajectory(script=script) for script in (SHED_GROUNDED, SHED_GROUNDED, SHED_GROUNDED.imagined())]
    file.write_bytes(b"\n".join(record.to_json() for record in records) + b"\n")
    return file


def play(task: Task, says: Says, folder: Path, **more: Any) -> EvalLog:
    """The log of a task that is played by what `says` answers to a chat."""

    def answer(messages: list[ChatMessage], *_: object) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", says(messages))
        output.usage = ModelUsage(
            input_tokens=1, output_tokens=1
        )  # Else Inspect counts with a vocabulary that it fetches.
        return output

    model = get_model("mockllm/model", custom_outputs=answer)
    return eval(task, model=model, log_dir=str(folder), display="none", **more)[0]


def samples(log: EvalLog) -> list[EvalSample]:
    """Of a whole evaluation; `evaluate` itself gives headers."""
    assert log.status == "success", [one.error for one in read_eval_log(log.location).samples or []]
    return read_eval_log(log.location).samples or []


def only(log: EvalLog) -> EvalSample:
    (sample,) = samples(log)
    return sample


def value(sample: EvalSample) -> dict[str, Any]:
    assert sample.scores is not None
    found = sample.scores[SCORE].value
    assert isinstance(found, dict)
    return found


def score_of(sample: EvalSample) -> dict[str, Any]:
    """What the score says besides its value."""
    return ((sample.scores or {})[SCORE].metadata) or {}


def act(*actions: str) -> Says:
    """A player that takes these actions, one a turn, then the last for ever."""
    return lambda messages: f"Thought: hm\nAction: {actions[min(len(messages) // 2, len(actions) - 1)]}"


def test_the_oracle_wins_every_world(worlds: Path, tmp_path: Path):
    (log,) = evaluate(Evaluation(model="oracle", tasks=f"worlds:{worlds}", output=tmp_path))
    assert log.eval.model == "control/oracle"
    assert value(only(log))["success"] == 1.0


@pytest.mark.parametrize("control", ["random", "first"])
def test_a_control_takes_valid_actions_and_the_same_ones_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: str
):
    register(monkeypatch, [Instance("one", {})])

    def played(folder: str) -> list[str]:
        asked = Evaluation(model=control, tasks="chaos", output=tmp_path / folder, epochs=4)
        (log,) = evaluate(asked)
        assert all(value(sample)["invalid_actions"] == 0.0 for sample in samples(log))
        return ["/".join(message.text for message in sample.messages[1:]) for sample in samples(log)]

    once = played("once")
    assert once == played("again")
    assert (len(set(once)) > 1) == (control == "random")


def test_the_chat_is_the_one_that_training_sees(worlds: Path, tmp_path: Path):
    """Word for word: what a model is asked in an evaluation is what `render_turns` makes of the same turns."""
    seen: list[list[tuple[str, str]]] = []

    def says(messages: list[ChatMessage]) -> str:
        seen.append([(message.role, message.text) for message in messages])
        return act("open box", "take key from box", "go home")(messages)

    sample = only(play(benchmark_task("worlds", TaskSettings(argument=str(worlds), steps=3)), says, tmp_path))
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for asked, message in zip(seen, sample.messages[1::2], strict=True):
        rendered = render_turns(SHED_GROUNDED, turns)
        assert asked == [(one.role, one.content) for one in rendered]
        answered = sample.messages[len(asked) + 1]
        turns += [player(message.text.partition("Action: ")[2], "hm"), dm(answered.text)]


@pytest.fixture
def mistaken(tmp_path: Path) -> Path:
    """A trajectory that errs on its second turn, and one that never does."""
    records = [erring("open box", "take saw", "take key"), erring("open box")]
    assert [one.mistakes() for one in records] == [(2,), ()]
    file = tmp_path / "mistaken.jsonl"
    file.write_bytes(b"\n".join(record.to_json() for record in records) + b"\n")
    return file


def test_a_play_goes_on_behind_its_first_mistake(mistaken: Path, tmp_path: Path):
    asked: list[list[str]] = []

    def says(messages: list[ChatMessage]) -> str:
        asked.append([message.text for message in messages])
        return "Thought: hm\nAction: take saw" if len(asked) == 1 else "Thought: hm\nAction: take key"

    sample = only(play(benchmark_task("mistakes", TaskSettings(argument=str(mistaken), steps=2)), says, tmp_path))
    given = Trajectory.from_json(mistaken.read_bytes().splitlines()[0]).turns[:4]
    assert asked[0] == [message.content for message in render_turns(SHED_GROUNDED, given)]
    # Two of its own turns: the given mistake once more, and its repair; the box stands open as it was left.
    found = score_of(sample)["counts"]
    assert (found["turns"], found["refused"], found["after_failure"], found["repeated"]) == (2, 1, 2, 1)
    assert (found["failures"], found["recovered"], found["steps_to_recover"]) == (1, 1, 2)


def test_what_failed_by_chance_is_not_carried_out_when_a_play_goes_on(tmp_path: Path):
    world, shut = World(SHED_GROUNDED), SHED_GROUNDED.environment
    refused = world.step(shut, "take key")
    assert refused.kind is not None
    slipped = dm("It is stuck.").model_copy(update={"transient": True})
    turns = (player("open box"), slipped, player("take key"), dm(refused.text, refused.kind))
    file = tmp_path / "slipped.jsonl"
    file.write_bytes(trajectory(*turns, script=SHED_GROUNDED).to_json() + b"\n")
    (instance,) = benchmarks.read_instances("mistakes", argument=str(file))
    environment = GroundedWorld()
    assert len(environment.reset(instance).history) == 2
    assert environment.step("take key").refused
    assert not environment.step("open box").refused


def test_a_player_reads_of_types_as_in_training(tmp_path: Path):
    fill = ActionSpec.model_validate(
        {
            "name": "fill {amount}",
            "pattern": "fill (.+)",
            "parameters": {"amount": []},
            "types": {"amount": {"type": "integer", "minimum": 1, "maximum": 5}},
        }
    )
    script = SHED_GROUNDED.model_copy(update={"actions": (*SHED_GROUNDED.actions, fill)})
    file = tmp_path / "typed.jsonl"
    file.write_bytes(trajectory(script=script).to_json() + b"\n")
    (instance,) = benchmarks.read_instances("worlds", argument=str(file))
    start = GroundedWorld().reset(instance)
    assert first_message(start, ReactForm(start)) == render_task(script)


def erring(*actions: str) -> Trajectory:
    """A play of these actions, whatever comes of them."""
    world, state = World(SHED_GROUNDED), SHED_GROUNDED.environment
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for action in actions:
        ruling = world.step(state, action)
        state = ruling.state
        turns += [player(action, "hm"), dm(ruling.text, ruling.kind or "")]
    return trajectory(*turns, script=SHED_GROUNDED)


def test_a_play_goes_on_behind_each_stretch_of_mistakes_and_its_repair_is_measured(tmp_path: Path):
    one = erring("take key", "take key", "open box", "sing", "take saw", "take key", "sing")
    flags = [turn.flagged for turn in one.turns if isinstance(turn, DungeonMasterTurn)]
    assert flags == [True, True, False, True, True, False, True]
    file = tmp_path / "erring.jsonl"
    file.write_bytes(one.to_json() + b"\n" + one.to_json() + b"\n")
    found = benchmarks.read_instances("recovery", argument=str(file))
    assert len(found) == 3  # the second line is a branch with the same beginning
    levels = [dict(part.split("=") for part in one.level.split()) for one in found]
    assert [(level["position"], level["row"]) for level in levels] == [
        ("early", "loop"),
        ("middle", "2"),
        ("late", "1"),
    ]
    assert levels[2]["kind"] == "parameter"
    environment = GroundedWorld()
    start = environment.reset(found[0])
    assert [(each.action, each.refused) for each in start.history] == [("take key", True)] * 2
    assert environment.step("sing").measures == {"repaired": 0.0}
    assert environment.step("open box").measures == {"repaired": 1.0}
    assert environment.step("sing").measures == {"repaired": 1.0}
    environment.reset(benchmarks.read_instances("worlds", argument=str(file))[0])
    assert environment.step("sing").measures == {}
    damaged = replace(found[0], data={**found[0].data, "turns": found[0].data["turns"][2:]})
    with pytest.raises(BadInstance, match="cannot be executed"):
        environment.reset(replace(damaged, data={**damaged.data, "turns": [*damaged.data["turns"], {"role": "x"}]}))
    (log,) = evaluate(Evaluation(model="oracle", tasks=f"recovery:{file}", output=tmp_path / "logs"))
    for sample in log.samples or ():
        assert value(sample)["success"] == value(sample)["repaired"] == 1.0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_the_oracle_takes_again_what_slipped(mistaken: Path, tmp_path: Path, share: float):
    lines = [json.dumps({**json.loads(line), "slips": share}) for line in mistaken.read_bytes().splitlines()]
    mistaken.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tasks = f"worlds:{mistaken},mistakes:{mistaken}"
    for log in evaluate(Evaluation(model="oracle", tasks=tasks, output=tmp_path / "logs")):
        assert value(only(log))["success"] == 1.0
        assert value(only(log))["invalid_actions"] == 0.0


@pytest.mark.parametrize("slips", [2, -1, 1, "often", True, None, [0.2], float("nan")])
@pytest.mark.parametrize("task", ["worlds", "mistakes", "recovery"])
def test_a_share_that_slips_is_a_share(mistaken: Path, task: str, slips: object):
    first = json.loads(mistaken.read_bytes().splitlines()[0])
    mistaken.write_text(json.dumps({**first, "slips": slips}) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1 .* has the slips .* at least 0 and below 1"):
        benchmarks.read_instances(task, argument=str(mistaken))


def test_no_record_is_dropped_for_the_name_of_another(mistaken: Path):
    """One world with two shares is two instances, and so are two trajectories of one id; equal ones count once."""
    first = json.loads(mistaken.read_bytes().splitlines()[0])
    records = [first, {**first, "slips": 0.0}, {**first, "slips": 0.5}]
    mistaken.write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    assert [len(benchmarks.read_instances(task, argument=str(mistaken))) for task in ("worlds", "mistakes")] == [2, 2]


def test_a_control_that_has_no_action_left_ends_its_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, [Instance("one", {"solution": 2})])
    (log,) = evaluate(Evaluation(model="oracle", tasks="chaos", output=tmp_path))
    assert (score_of(only(log))["stopped"], value(only(log))["progress"]) == ("no action", pytest.approx(2 / 3))


def test_a_run_without_mistakes_has_none_to_go_on_from(mistaken: Path):
    clean = mistaken.with_name("clean.jsonl")
    clean.write_bytes(mistaken.read_bytes().splitlines(keepends=True)[1])
    for name in ("mistakes", "recovery"):
        with pytest.raises(InputError, match=r"no trajectory in .* has a mistake to begin behind"):
            benchmarks.read_instances(name, argument=str(clean))


def test_a_failed_action_and_a_message_without_one_cost_turns_and_are_counted(worlds: Path, tmp_path: Path):
    said = ["I wonder.", "Thought: a\nAction: fly away", "Thought: b\nAction: fly away", "Thought: c\nAction: open box"]
    task = benchmark_task("worlds", TaskSettings(argument=str(worlds), steps=4))
    sample = only(play(task, lambda messages: said[len(messages) // 2], tmp_path))
    counts = score_of(sample)["counts"]
    assert (counts["turns"], counts["format_errors"], counts["refused"]) == (4, 1, 2)
    assert (counts["after_failure"], counts["repeated"], counts["recovered"]) == (3, 1, 1)
    assert "begins with" in sample.messages[2].text


HOSTILE = (
    "",
    "\ud800\x00\x1b[31mAction: open box",
    "Action:" * 1_000,
    "x" * 200_000,
    "Action: " + "y" * 100_000,
    "<think>",
)


def test_no_answer_ends_an_evaluation(worlds: Path, tmp_path: Path):
    task = benchmark_task("worlds", TaskSettings(argument=str(worlds), steps=len(HOSTILE)))
    sample = only(play(task, lambda messages: HOSTILE[len(messages) // 2], tmp_path))
    assert value(sample)["success"] == 0.0
    assert score_of(sample)["counts"]["turns"] == len(HOSTILE)


def test_the_same_command_keeps_what_is_finished_and_plays_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The model cannot be asked at first; later it can, and only what failed is played again."""
    register(monkeypatch, [Instance(f"i{number}", {}) for number in range(4)])
    asked = Evaluation(model="oracle", tasks="chaos", output=tmp_path)
    (log,) = evaluate(Evaluation(model="oracle", tasks="chaos", output=tmp_path, limit=2))
    before = {sample.id: sample.uuid for sample in samples(log)}
    (log,) = evaluate(asked)
    after = {sample.id: sample.uuid for sample in samples(log)}
    assert len(after) == 4
    assert before.items() <= after.items()


def test_two_tasks_of_one_benchmark_go_on_in_one_folder(tmp_path: Path, worlds: Path):
    other = tmp_path / "other.jsonl"
    other.write_bytes(worlds.read_bytes())
    states: list[Progress] = []
    asked = Evaluation(model="oracle", tasks=f"worlds:{worlds},worlds:{other}", output=tmp_path / "logs")
    for _ in range(2):
        logs = evaluate(asked, on_progress=states.append)
        assert [log.status for log in logs] == ["success"] * 2
    assert (states[0].finished, states[-1].finished, states[-1].total) == (0, 2, 2)


def test_changed_weights_are_another_evaluation(
    tmp_path: Path, worlds: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.safetensors").write_bytes(b"old" * 10_000_000)
    model = get_model("control/oracle")
    monkeypatch.setattr(model, "model_args", {"model_path": str(folder)})

    def open_model(*_: object, **__: object) -> Model:
        return model

    monkeypatch.setattr(evaluation_run, "open_model", open_model)
    asked = Evaluation(model="oracle", tasks=f"worlds:{worlds}", output=tmp_path)
    evaluate(asked)
    copy = copytree(folder, folder / "copy")
    monkeypatch.setattr(model, "model_args", {"model_path": str(copy)})
    evaluate(asked)
    (copy / "model.safetensors").write_bytes(b"new" * 10_000_000)
    with pytest.raises(InputError, match=r"other weights.* give another -o"):
        evaluate(asked)


def test_logs_do_not_go_into_the_folder_of_a_run(tmp_path: Path, worlds: Path):
    (tmp_path / "config.json").write_text('{"schema_version": 1}')
    with pytest.raises(InputError, match="is the folder of a run"):
        evaluate(Evaluation(model="oracle", tasks=f"worlds:{worlds}", output=tmp_path))


def test_a_folder_holds_one_evaluation(tmp_path: Path, worlds: Path):
    tasks = f"worlds:{worlds}"
    evaluate(Evaluation(model="oracle", tasks=tasks, output=tmp_path))
    for other, word in (
        (Evaluation(model="random", tasks=tasks, output=tmp_path), "control/oracle"),
        (Evaluation(model="oracle", tasks=tasks, output=tmp_path, steps=7), "steps"),
        (Evaluation(model="oracle", tasks=tasks, output=tmp_path, temperature=1.0), "temperature"),
    ):
        with pytest.raises(InputError, match=word):
            evaluate(other)


def test_an_instance_whose_process_died_is_begun_anew_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "once").touch()
    data = {"wrong": {"2": "die"}, "once": str(tmp_path / "once")}
    register(monkeypatch, [Instance("once", data), Instance("always", {"wrong": {"2": "die"}})])
    (log,) = evaluate(Evaluation(model="oracle", tasks="chaos", output=tmp_path / "logs"))
    once, always = (score_of(sample) for sample in sorted(samples(log), key=lambda one: str(one.id), reverse=True))
    assert (once["stopped"], once["counts"]["turns"], len(once["faults"])) == ("done", 3, 1)
    assert (always["stopped"], always["counts"]["turns"], len(always["faults"])) == ("environment", 1, 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tasks": "babbyai"}, "benchmark is 'babbyai'; expected one of 'alfworld'"),
        ({"tasks": "worlds"}, "worlds:runs/held-out"),
        ({"tasks": "babyai"}, "name the folder that holds babyai/ by --data"),
        ({"model": "oracle", "settings": {"x": 1}}, "takes no settings"),
    ],
)
def test_wrong_input_is_said_before_anything_is_played(
    worlds: Path, tmp_path: Path, wrong: dict[str, Any], message: str
):
    asked: dict[str, Any] = {"model": "oracle", "tasks": f"worlds:{worlds}", "output": tmp_path / "logs", **wrong}
    with pytest.raises(InputError, match=message):
        evaluate(Evaluation(**asked))
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no json", "line 1 .* is no JSON"),
        ("{}", "has no script"),
        (json.dumps({"script": {"rulebook": {}}}), "its script cannot be read"),
        (json.dumps({"script": {}}), "no script in .* is grounded"),
    ],
)
def test_a_file_that_holds_no_worlds_is_said(tmp_path: Path, line: str, message: str):
    (tmp_path / "trajectories.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        benchmarks.read_instances("worlds", argument=str(tmp_path))


def register(monkeypatch: pytest.MonkeyPatch, instances: list[Instance]) -> None:
    """The benchmark `chaos`, with these instances, where those of the package are found."""
    from refinesynth.evaluate import registry, task

    def read(_: Source) -> list[Instance]:
        return instances

    found = replace(CHAOS, instances=read)
    usual = benchmarks.find

    def find(name: str) -> Benchmark:
        return found if name == "chaos" else usual(name)

    for module in (benchmarks, task):
        monkeypatch.setattr(module, "find", find)
    monkeypatch.setitem(registry.TASKS, "chaos", registry.registered("chaos"))


def test_two_evaluations_do_not_share_a_folder(worlds: Path, tmp_path: Path):
    with FolderLock(tmp_path, work="evaluation"), pytest.raises(RunFolderError, match="another evaluation"):
        evaluate(Evaluation(model="oracle", tasks=f"worlds:{worlds}", output=tmp_path))


def test_no_environment_is_left_when_an_evaluation_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, [Instance("one", {})])
    (log,) = evaluate(Evaluation(model="oracle", tasks="chaos", output=tmp_path))
    pid = int(only(log).messages[0].text.partition("pid ")[2].split()[0])
    assert not Path(f"/proc/{pid}").exists()
