"""`refinesynth evaluate` from outside: an environment of one's own from an installed package, the same command again, and
Ctrl-C.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from command_line import cli
from inspect_marks import INSPECT
from samples import SHED_GROUNDED, trajectory
from tiny_backend import completion_of

from refinesynth.errors import InputError

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai.log import list_eval_logs, read_eval_log_sample_summaries

from refinesynth.evaluate import benchmarks
from refinesynth.evaluate.evaluation_run import Progress, evaluate
from refinesynth.evaluate.settings import Evaluation
from refinesynth.serve import create_app, running

pytestmark = INSPECT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evaluation.md"


def install(folder: Path, source: str, name: str = "countdown") -> None:
    """A package with one benchmark, as pip leaves it."""
    (folder / "my_package").mkdir(parents=True, exist_ok=True)
    (folder / "my_package" / f"{name}.py").write_text(source, encoding="utf-8")
    about = folder / f"my_package_{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my-package-{name}\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[{benchmarks.TABLE.group}]\n{name} = my_package.{name}:BENCHMARK\n"
    (about / "entry_points.txt").write_text(entry, encoding="utf-8")


@pytest.fixture
def countdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's own example, installed where this process and those that it starts find it."""
    (source,) = re.findall(r"```python\n(from collections.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    install(tmp_path / "site", source)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def test_an_environment_of_ones_own_is_evaluated_and_compared(countdown: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "evals" / model for model in ("random", "oracle")]
    for folder, finished in (*((one, 0) for one in folders), (folders[0], 3)):  # at last what is there already
        played = cli("evaluate", "--model", folder.name, "--tasks", "countdown", "-o", folder)
        assert played.exit_code == 0, played.output
        bounds = "countdown (at most 30 actions): {} of 3 episodes finished; an answer has at most 1,024 tokens"
        assert bounds.format(finished) in played.stderr
        assert "--paper" not in played.stdout
    compared = cli("compare", *folders)
    assert compared.exit_code == 0, compared.output
    assert re.search(r"countdown +oracle +3 +100\.0", compared.stdout)


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(trajectory(script=SHED_GROUNDED).to_json() + b"\n")
    options = ("--model", "oracle", "--tasks", f"worlds:{tmp_path / 'run.jsonl'}", "-o", tmp_path / "logs")
    assert cli("evaluate", *options).exit_code == 0
    (log,) = (tmp_path / "logs").glob("*.eval")
    whole = log.read_bytes()
    for kept in (0, len(whole) // 2):
        log.write_bytes(whole[:kept])
        again = cli("evaluate", *options)
        assert again.exit_code == 2
        assert re.search(rf"{log.name}' cannot be read \(.*\); move it away\n", again.stderr)


WRONG = {
    "class": ("my_package.countdown:Countdown", "my_package.wrong:NoSuchClass", "cannot be opened: .*'NoSuchClass'"),
    "module": (
        "my_package.countdown:Countdown",
        "my_package.nothing:X",
        "'my_package.nothing', which is not installed: i",
    ),
    "data": ('{"from": number}', '{"from": object()}', "instances of wrong cannot be read: .* expected JSON"),
    "ids": ('f"from-{number}"', '"one"', "more than one instance 'one'"),
    "reader": ("return [Instance", "return [Instanze", "cannot be read: NameError"),
    "name": ('Benchmark("wrong"', 'Benchmark("other"', "a Benchmark of the name 'wrong' is expected"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_an_environment_of_ones_own_is_said(countdown: Path, tmp_path: Path, wrong: str) -> None:
    right, instead, words = WRONG[wrong]
    source = (countdown / "my_package" / "countdown.py").read_text(encoding="utf-8").replace("countdown", "wrong")
    right = right.replace("countdown", "wrong")
    assert right in source
    install(countdown, source.replace(right, instead), "wrong")
    with pytest.raises(InputError, match=words):
        evaluate(Evaluation(model="oracle", tasks="wrong", output=tmp_path / "logs"))


class Server:
    """A server that brings a counter of 1 to 0, and leaves every other without an answer until it is released."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.released = threading.Event()
        self.url = ""

    async def __call__(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if "The counter shows 1." not in request["messages"][0]["content"]:
            await anyio.to_thread.run_sync(self.released.wait)
        return completion_of(request, {"role": "assistant", "content": "Thought: Down.\nAction: press"})


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    with running(create_app(found)) as address:
        found.url = f"{address}/v1"
        yield found
        found.released.set()


@pytest.mark.representative
def test_the_same_settings_go_on_and_others_are_named(countdown: Path, tmp_path: Path, server: Server) -> None:
    server.released.set()
    settings: dict[str, Any] = {"base_url": server.url, "path": "direct", "extra": {"top_k": 5}}

    def asked(limit: int, *, max_tokens: int = 99, **other: object) -> Evaluation:
        more: dict[str, Any] = {"limit": limit, "max_tokens": max_tokens, "settings": {**settings, **other}}
        return Evaluation(model="vllm/m", tasks="countdown", output=tmp_path / "logs", **more)

    states: list[Progress] = []
    evaluate(asked(1), on_progress=states.append)
    assert server.asked[-1]["max_tokens"] == 99
    evaluate(asked(2), on_progress=states.append)
    assert [(one.finished, one.total, one.max_tokens) for one in states] == [
        (0, 1, 99),
        (1, 1, 99),
        (1, 2, 99),
        (2, 2, 99),
    ]
    assert [one.seconds_left is None for one in states] == [True, False, True, False]
    others: dict[str, Any] = {"base_url": f"{server.url}/other", "extra": {"top_k": 6}, "max_tokens": 98, "retries": 1}
    for name, value in others.items():
        with pytest.raises(InputError, match=f" with {name}=.*give another -o"):
            evaluate(asked(2, **{name: value}))


def test_ctrl_c_ends_an_evaluation_at_once_with_one_true_line(countdown: Path, tmp_path: Path, server: Server) -> None:
    words = ["evaluate", "--model", "hosted_vllm/m", "--tasks", "countdown", "-o", "logs"]
    words += ["--set", f"base_url={server.url}", "--set", "path=direct"]
    with subprocess.Popen(
        [sys.executable, "-m", "refinesynth", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("1 of 3 episodes finished, about "):
                break
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert time.monotonic() - begun < 3
        said = "interrupted: 1 of 3 episodes finished, kept in logs; the same command goes on\n"
        assert (process.stdout.read(), process.stderr.read()) == ("", said)
    (log,) = list_eval_logs(str(tmp_path / "logs"))
    assert [one.id for one in read_eval_log_sample_summaries(log) if one.scores] == ["from-1"]
