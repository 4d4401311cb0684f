"""How many files of the package one episode, and one completion, goes through: what a reader who follows it has to
open.

python -m bench.entered [--list]
"""

import argparse
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import anyio
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest

import refinesynth
from refinesynth.backends import Role, resolve_roles
from refinesynth.client import open_models
from refinesynth.client.session import Session
from refinesynth.episode import EpisodeSettings, play_episode, plays
from refinesynth.personas import shipped
from refinesynth.prompts import Prompts
from refinesynth.settings.grounding import Grounding

PACKAGE = Path(refinesynth.__file__).parent


@contextmanager
def entered() -> Generator[set[str], None, None]:
    """The package's files whose functions are called within the block, by their paths in it; importing a module is no
    call."""
    found: set[str] = set()
    root = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Neither a module's code nor a class's is optimized: both run once, on import.
        if event == "call" and code.co_filename.startswith(root) and code.co_flags & CO_OPTIMIZED:
            found.add(code.co_filename.removeprefix(root))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def episode(play: str) -> set[str]:
    """Files that one episode of the rehearsal goes through, from models and prompts that are there already."""
    chosen = plays.find(play)
    rules, script_rules = chosen.rules(), chosen.script_rules(Grounding())
    settings = EpisodeSettings(rules=rules, script_rules=script_rules, prompts=Prompts(), play=play)
    models = open_models(resolve_roles("rehearsal"))
    persona = shipped()[0]
    with entered() as files:
        outcome = await play_episode(persona, index=0, settings=settings, models=models)
    if not outcome.accepted:
        raise RuntimeError(f"the episode gave nothing: {outcome.reason}")
    return files


async def run(play: str) -> set[str]:
    """Files that a whole run of one episode goes through, from its arguments to its folder."""
    with TemporaryDirectory() as folder, entered() as files:
        await refinesynth.synthesize(n=1, play=play, output=Path(folder) / "run")
    return files


async def completion() -> set[str]:
    """Files that one request and its answer go through, as an episode asks; what answers is outside the package."""

    async def call(**_: object) -> dict[str, Any]:
        message = {"role": "assistant", "content": "Thought: I look.\nAction: look"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    models = open_models(resolve_roles("hosted_vllm/any"), call=call)
    model = Session(id="one", seed=0).model(Role.PLAYER, models[Role.PLAYER])
    with entered() as files:
        await model_request(model, [ModelRequest.user_text_prompt("What do you do?")])
    return files


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files")
    asked = parser.parse_args()
    walks: dict[str, Callable[[], Coroutine[Any, Any, set[str]]]] = {
        "one completion": completion,
        "a run of one live episode": partial(run, "live"),
        **{f"one {play} episode": partial(episode, play) for play in plays.BUILT_IN},
    }
    for what, walk in walks.items():
        files = anyio.run(walk)
        print(f"{what}: {len(files)} files")
        if asked.list:
            print("".join(f"    {name}\n" for name in sorted(files)), end="")


if __name__ == "__main__":
    main()
