"""A command that is told to stop, or whose disk fails, says so, keeps what it has, and goes on when it is given once
more."""

import signal
import time
from pathlib import Path

import pytest
from chaos_stage import check_folder
from launching import Launched, Launcher

pytestmark = pytest.mark.process

N = 24
DATA = ("trajectories.jsonl", "rejected.jsonl")


def command(folder: Path, *, n: int = N) -> list[str]:
    backend = "rehearsal:invalid_json=0.05,too_few_errors=0.15,wrong_parameters=0.1"
    options = ["-n", str(n), "--play", "narrated", "--seed", "3", "--concurrency", "4", "--backend", backend]
    return ["run", *options, "-o", str(folder)]


@pytest.fixture(scope="module")
def launcher(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(warm, tmp_path_factory.mktemp("launcher") / "said")


@pytest.fixture(scope="module")
def whole(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the run writes if nothing happens."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    code, said = launcher.run(command(folder))
    assert code == 0, said
    return {name: (folder / name).read_bytes() for name in DATA}


def goes_on(launcher: Launcher, folder: Path, whole: dict[str, bytes]) -> None:
    """The same command once more makes the rest."""
    check_folder(folder)
    code, said = launcher.run(command(folder))
    assert code == 0, said
    check_folder(folder)
    assert {name: (folder / name).read_bytes() for name in DATA} == whole


def wait_until_it_writes(folder: Path, process: Launched) -> None:
    written = folder / "trajectories.jsonl"
    while not (written.exists() and written.stat().st_size) and not process.ended:
        time.sleep(0.002)


def interrupted(launcher: Launcher, folder: Path, *signals: signal.Signals) -> tuple[int, str]:
    """A run that gets these signals once it has written something: its exit code, and what it printed."""
    launcher.said.unlink(missing_ok=True)
    # More than it can make before that.
    process = launcher.command(command(folder, n=300))
    wait_until_it_writes(folder, process)
    for number in signals:
        process.signal(number)
        # Signals that come closer together are taken for one.
        time.sleep(0.25)
    return process.wait(), launcher.said.read_text()


@pytest.mark.representative
@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGTERM], 143),
        ([signal.SIGINT], 130),
        ([signal.SIGHUP], 129),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT, signal.SIGKILL], 130),
    ],
    ids=["SIGTERM", "Ctrl-C", "SIGHUP", "Ctrl-C twice", "Ctrl-C twice and kill -9"],
)
def test_a_signal_ends_it_with_its_own_exit_code(
    signals: list[signal.Signals], code: int, launcher: Launcher, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    ended, said = interrupted(launcher, folder, *signals)
    # The second may find a process that is ending by the first.
    assert ended in {code, -signals[-1]}, said
    assert "Traceback" not in said
    if len(signals) == 1:
        assert "To continue:" in said
    kept = (folder / "trajectories.jsonl").read_bytes()
    assert kept.count(b"\n") < N, "it was interrupted early"
    assert whole["trajectories.jsonl"].startswith(kept)
    goes_on(launcher, folder, whole)


@pytest.mark.parametrize("lines", [0, 1, 9])
def test_killed_at_any_instant_it_ends_as_if_it_never_was(
    lines: int, launcher: Launcher, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Every commit boundary is tried in process, see `test_synthesis_durable`; here the kernel does it, early and late."""
    folder = tmp_path / "run"
    # More than it can make before that.
    process = launcher.command(command(folder, n=300))
    written = folder / "trajectories.jsonl"
    while not process.ended and (not written.exists() or written.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)
    assert process.kill() == -signal.SIGKILL
    code, said = launcher.run(command(folder))
    assert code == 0, said
    check_folder(folder)
    # It may have made more than it was asked for now before it was killed.
    for name, content in whole.items():
        assert (folder / name).read_bytes().startswith(content)


@pytest.mark.parametrize("size", [1_000, 10_000, 40_000, 100_000, 300_000])
def test_a_full_disk_is_said_and_costs_nothing_that_was_finished(
    size: int, launcher: Launcher, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    code, said = launcher.run(command(folder), most_bytes=size)
    assert code == 3, said
    assert "Traceback" not in said
    assert "\nrefinesynth: " in said
    goes_on(launcher, folder, whole)
