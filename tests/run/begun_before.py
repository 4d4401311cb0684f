"""Runs as a commit that stands for them wrote them: one to its end, and the same one killed on its way.

`python tests/run/begun_before.py` makes tests/run/begun/ anew with the code that is checked out. That is right only
where the prompts, the rules or the formats were changed on purpose, so that no run from before can go on.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Literal

import anyio
import orjson

from refinesynth import synthesize
from refinesynth.chat.react import with_former_instructions

PLAYS: tuple[Literal["live", "narrated", "grounded"], ...] = ("live", "narrated", "grounded")
BEGUN = Path(__file__).parent / "begun"
PEOPLE = [f"{who} who keeps {what}" for who in ("A potter", "A nurse", "A clerk") for what in ("bees", "ledgers")]
FILES = ("trajectories.jsonl", "rejected.jsonl")
SEED = 3
KILLED_AT = {"live": 50, "narrated": 7, "grounded": 30}
"""The request during which the process ends, with some episodes finished and others half played."""


def key_of(request: dict[str, Any]) -> str:
    """The same for two requests that ask the same, however the instructions are worded, and whatever bounds and types a
    schema names."""
    asked = {name: request.get(name) for name in ("model", "messages", "tools", "response_format", "seed")}
    asked["messages"] = [
        {**one, "content": with_former_instructions(one["content"]) if one.get("content") else one.get("content")}
        for one in request["messages"]
    ]
    return hashlib.sha256(orjson.dumps(_unbounded(asked), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _unbounded(value: Any) -> Any:
    if isinstance(value, dict):
        added = {"minItems", "minLength", "types", "Type"}
        return {key: _unbounded(below) for key, below in value.items() if key not in added}  # pyright: ignore[reportUnknownVariableType]
    return [_unbounded(below) for below in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


class Recorded:
    """Answers as was answered then; what was not asked then is a `KeyError`."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, **request: Any) -> Any:
        key = key_of(request)
        self.asked.append(key)
        return self.answers[key]


class Recording(Recorded):
    """Answers as the rehearsal does, and keeps it."""

    async def __call__(self, **request: Any) -> Any:
        from refinesynth.rehearsal import Rehearsal

        self.answers[key_of(request)] = answer = await Rehearsal()(**request)
        return answer


class Killed(Recorded):
    """Ends the process during a request, as a loss of power does."""

    def __init__(self, answers: dict[str, Any], at: int) -> None:
        super().__init__(answers)
        self.at = at

    async def __call__(self, **request: Any) -> Any:
        if len(self.asked) == self.at:
            # What was finished so far is on disk by then.
            await anyio.sleep(1)
            os._exit(9)
        return await super().__call__(**request)


async def play(play: Literal["live", "narrated", "grounded"], call: Recorded, folder: Path) -> None:
    """The run that all of this is about; one after the other, so that it is killed at the same place."""
    await synthesize(PEOPLE, len(PEOPLE), "openai/any", play=play, call=call, output=folder, seed=SEED, concurrency=2)


def _make(play_: Literal["live", "narrated", "grounded"]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = Recording({})
        anyio.run(play, play_, recording, folder / "finished")
        answers = folder / "answers.json"
        answers.write_bytes(orjson.dumps(recording.answers))
        subprocess.run([sys.executable, __file__, str(PLAYS.index(play_)), answers, folder / "begun"], check=False)
        copy = folder / "copy"
        subprocess.run(["cp", "-r", folder / "begun", copy], check=True)
        again = Recorded(recording.answers)
        anyio.run(play, play_, again, copy)
        (folder / "asked.json").write_bytes(orjson.dumps(sorted(again.asked)))
        for file in FILES:
            assert (copy / file).read_bytes() == (folder / "finished" / file).read_bytes()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz") as tar:
            for path in (answers, folder / "asked.json", folder / "begun", *(folder / "finished" / f for f in FILES)):
                tar.add(path, arcname=str(path.relative_to(folder)))
        BEGUN.mkdir(exist_ok=True)
        (BEGUN / f"{play_}.tar.xz").write_bytes(packed.getvalue())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _, number, answers, folder = sys.argv
        asked = PLAYS[int(number)]
        anyio.run(play, asked, Killed(orjson.loads(Path(answers).read_bytes()), KILLED_AT[asked]), Path(folder))
    for each in PLAYS:
        _make(each)
