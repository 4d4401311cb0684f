"""What users and their files rely on, as it stands: exports, options of commands, public names, a tiny training.

`python tests/golden/frozen.py` writes it anew from the code that is checked out. That is right only where something
was changed on purpose; look at the difference before you commit it.
"""

import hashlib
import importlib
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent
RUNS = HERE.parent / "run" / "begun"
FORMATS = (
    "sharegpt",
    "llamafactory",
    "openai",
    "trl",
    "trl-split",
    "axolotl",
    "agentinstruct",
    "ms-swift",
    "paper",
    "preference",
    "atif",
)
ROOMS = ("backends", "chat", "client", "evaluate", "export", "imports", "personas", "rules", "testing", "train")


def trajectories(play: str, folder: Path) -> Path:
    """What a run wrote in that play."""
    with tarfile.open(RUNS / f"{play}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "finished" / "trajectories.jsonl"


def exported(source: Path, format_name: str, into: Path) -> str:
    """SHA-256 of the file that `refinesynth export` writes."""
    from typer.testing import CliRunner

    from refinesynth.cli.app import app

    path = into / f"{format_name}.jsonl"
    done = CliRunner().invoke(app, ["export", str(source), "--format", format_name, "-o", str(path)])
    assert done.exit_code == 0, done.output
    return hashlib.sha256(path.read_bytes()).hexdigest()


def exports() -> dict[str, dict[str, str]]:
    """Play to format to digest; `rl` is of executed worlds alone."""
    found: dict[str, dict[str, str]] = {}
    for play in ("live", "narrated", "grounded"):
        with tempfile.TemporaryDirectory() as name:
            source = trajectories(play, Path(name))
            formats = (*FORMATS, "rl") if play == "grounded" else FORMATS
            found[play] = {each: exported(source, each, Path(name)) for each in formats}
    return found


def commands() -> dict[str, list[str]]:
    """Command to its options and arguments, each as all its names."""
    import typer.main

    from refinesynth.cli.app import app

    return dict(sorted(_commands(typer.main.get_command(app), "")))


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
    for name in group.commands:
        _, command, _ = group.resolve_command(None, [name])
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield (
                f"{prefix}{name}",
                sorted(" ".join(sorted([*each.opts, *each.secondary_opts])) for each in command.params),
            )


def names() -> dict[str, list[str]]:
    """Module to its public names."""
    modules = ["refinesynth", *(f"refinesynth.{room}" for room in ROOMS)]
    return {each: sorted(importlib.import_module(each).__all__) for each in modules}


def rules() -> dict[str, str]:
    """Chain to its repr, under which its rules stand in logs and statistics."""
    from refinesynth import rules

    chains = ("strict", "agentrefine", "grounded", "script", "grounded_script")
    return {name: repr(getattr(rules, name)()) for name in chains}


def trained(folder: Path) -> dict[str, Any]:
    """A tiny training on the live run: its files, and what its metrics say."""
    from refinesynth.train import Trainer

    source = trajectories("live", folder)
    result = Trainer(recipe="smoke", data=source, output=folder / "model", max_steps=3, log_every=1).train()
    files = sorted(str(path.relative_to(result.output)) for path in result.output.glob("*") if path.is_file())
    lines = [orjson.loads(line) for line in (result.output / "metrics.jsonl").read_bytes().splitlines()]
    kept = ("step", "loss", "trained_tokens", "learning_rate")
    return {"files": files, "metrics": [{name: line[name] for name in kept if name in line} for line in lines]}


def main() -> None:
    """Write all of it."""
    with tempfile.TemporaryDirectory() as name:
        frozen = {
            "exports": exports(),
            "commands": commands(),
            "names": names(),
            "rules": rules(),
            "training": trained(Path(name)),
        }
    for name, value in frozen.items():
        (HERE / f"{name}.json").write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
