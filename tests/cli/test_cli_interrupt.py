"""Signals, as the process gets them. That a second one ends the process is tested from outside."""

import os
import signal
import sys
import threading
from collections.abc import Generator

import pytest

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.interrupt import EXIT_CODES, exit_despite_threads, exit_on_signals, interruptible


@pytest.fixture(autouse=True)
def _handlers() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in EXIT_CODES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGHUP, ExitCode.HANGUP)],
)
def test_a_signal_stops_what_is_to_be_stopped(number: signal.Signals, code: ExitCode) -> None:
    stopped: list[str] = []
    with interruptible() as interrupt:
        assert interrupt.exit_code is None
        interrupt.call_on_signal(lambda: stopped.append("now"))
        os.kill(os.getpid(), number)
        assert stopped == ["now"]
        assert interrupt.exit_code == code


def test_a_signal_that_came_early_is_not_lost() -> None:
    stopped: list[str] = []
    with interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        interrupt.call_on_signal(lambda: stopped.append("at once"))
    assert stopped == ["at once"]


def test_a_second_press_ends_the_process_also_while_it_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ended = [100.0], list[int]()
    monkeypatch.setattr("refinesynth.cli.interrupt.time.monotonic", lambda: now[0])
    monkeypatch.setattr("refinesynth.cli.interrupt.os._exit", ended.append)
    with interruptible():
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    assert ended == [], "the same press, received twice"
    now[0] += 1
    os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [ExitCode.TERMINATED]


def test_handlers_are_put_back_if_no_signal_came() -> None:
    before = [signal.getsignal(number) for number in EXIT_CODES]
    with interruptible():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in EXIT_CODES] == before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.received is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_commands_without_handlers_of_their_own_exit_with_their_cleanup_done(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ended, cleaned = [100.0], list[int](), list[str]()
    monkeypatch.setattr("refinesynth.cli.interrupt.time.monotonic", lambda: now[0])
    monkeypatch.setattr("refinesynth.cli.interrupt.os._exit", ended.append)

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            cleaned.append("once")

    signal.signal(number, signal.SIG_DFL)
    with exit_on_signals():
        with pytest.raises(SystemExit) as exited:
            work()
        assert (exited.value.code, cleaned, ended) == (EXIT_CODES[number], ["once"], [])
        now[0] += 1
        os.kill(os.getpid(), number)
        assert ended == [EXIT_CODES[number]]
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_signal_whose_exception_python_only_reports_is_sent_again(number: signal.Signals) -> None:
    class Called:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)

    signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    former_hook, called = sys.unraisablehook, [Called()]
    with exit_on_signals():
        called.clear()
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            threading.Event().wait(60)
    assert sys.unraisablehook is former_hook


def test_other_exceptions_that_python_only_reports_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Called:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    reported: list[object] = []

    def report(unraisable: "sys.UnraisableHookArgs") -> None:
        reported.append(unraisable.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", report)
    with exit_on_signals():
        for error in (ValueError("a callback"), SystemExit(3)):
            Called(error)
    assert reported == [ValueError, SystemExit]


def test_exits_on_signals_leaves_ignored_signals_and_handlers_as_they_are() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with exit_on_signals():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


@pytest.mark.parametrize("stuck", [True, False])
def test_only_a_thread_that_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch, *, stuck: bool) -> None:
    ended: list[int] = []
    monkeypatch.setattr("refinesynth.cli.interrupt.os._exit", ended.append)
    monkeypatch.setattr("refinesynth.cli.interrupt.THREAD_TIMEOUT", 0.05 if stuck else 60.0)
    free = threading.Event()
    thread = threading.Thread(target=free.wait)
    thread.start()
    try:
        if not stuck:
            free.set()
        exit_despite_threads(ExitCode.INTERRUPTED)
    finally:
        free.set()
        thread.join()
    assert ended == ([ExitCode.INTERRUPTED] if stuck else [])
