"""Process of an environment: one JSON request per line on standard input, one response per line on standard output.

    python -m refinesynth.evaluate.environments.worker

Needs only the standard library and the environment's package. The environment's own output goes to standard error. The
process ends when its input ends.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from refinesynth.evaluate.environments.environment import BadInstance, Instance, Start, Step, TextEnvironment

Response = dict[str, Any]

MAX_TEXT = 100_000
"""Most characters of an observation or a listed action that are passed on."""


class RequestHandler:
    """The environment of this process; a request names one of the methods and its arguments."""

    def __init__(self) -> None:
        self._environment: Any = None

    def handle(self, request: Mapping[str, Any]) -> str:
        """The response to one request as JSON; errors are responses too."""
        try:
            # The ASCII escapes of JSON preserve lone surrogates.
            return json.dumps(getattr(self, request["do"])(**request["with"]))
        except BadInstance as error:
            response = {"bad": str(error)}
        except ModuleNotFoundError as error:
            response = {"missing": error.name or str(error)}
        except Exception as error:  # noqa: BLE001 - an environment may raise anything, and must not end in silence
            response = {"failed": f"{type(error).__name__}: {error}"[:2_000]}
        return json.dumps(response)

    def open(self, environment: str, perturb: str) -> Response:
        module, _, name = environment.partition(":")
        make: Callable[..., TextEnvironment] = getattr(import_module(module), name)
        opened = make()
        if perturb:
            from refinesynth.evaluate.environments.perturbation import perturbed

            opened = perturbed(opened, perturb)
        self._environment = opened
        return {"solves": hasattr(opened, "solution")}

    def reset(self, instance: Mapping[str, Any]) -> Response:
        start: Start = self._environment.reset(Instance(**instance))
        return _truncate(asdict(start))

    def step(self, action: str) -> Response:
        step: Step = self._environment.step(action)
        if not 0 <= step.progress <= 1:
            raise ValueError(f"a step has the progress {step.progress!r}; expected 0 to 1")
        return _truncate(asdict(step))

    def valid_actions(self) -> Response:
        return {"actions": [action[:MAX_TEXT] for action in self._environment.valid_actions()]}

    def solution(self) -> Response:
        solve: Callable[[], Sequence[str] | None] | None = getattr(self._environment, "solution", None)
        if solve is None:
            raise BadInstance("this environment has no solution(), which the model oracle needs")
        actions = solve()
        return {"actions": None if actions is None else list(actions)}

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()


def _truncate(values: dict[str, Any]) -> Response:
    text: str = values["observation"]
    if len(text) > MAX_TEXT:
        values["observation"] = f"{text[: MAX_TEXT - 3]}..."
    return values


def _exit_with(parent: int) -> None:
    """End the process when the parent ends, even if the environment hangs and the end of input is not read."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    # Output that an environment prints must not mix with the responses.
    responses = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    handler = RequestHandler()
    try:
        for line in sys.stdin.buffer:
            responses.write(handler.handle(json.loads(line)).encode() + b"\n")
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        handler.close()


if __name__ == "__main__":
    main()
