"""Scripts of earlier runs, to be played again: each once, with the persona that it was written for."""

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from refinesynth.errors import InputError
from refinesynth.personas import Personas, PersonaSource, open_personas
from refinesynth.run.folder import RunFolder, read_trajectories
from refinesynth.trajectory import Persona, ScriptedPersona, Trajectory

ScriptSource: TypeAlias = str | PathLike[str] | Iterable[Persona]
"""A run folder, a file of trajectories, or `ScriptedPersona`s."""


def open_source(personas: PersonaSource | None, scripts: ScriptSource | None, *, column: str | None = None) -> Personas:
    """Personas, or in their place scripts with theirs, in the order of the trajectories.

    Raises:
        InputError: Both are given, a column without rows of personas, or what is given cannot be read.
    """
    if column is not None and (personas is None or isinstance(personas, Persona)):
        raise InputError(f"column is {column!r}, and no rows of personas are given that could have it")
    if scripts is None:
        return open_personas(personas, column=column)
    if personas is not None:
        raise InputError("personas and scripts are both given; scripts come with the personas they were written for")
    return _open(scripts)


def _open(source: ScriptSource) -> Personas:
    if not isinstance(source, str | PathLike):
        return open_personas(source)
    found = open_personas(_scripted(stored_trajectories(source)))
    found.description = f"the scripts of {str(Path(source))!r}"
    return found


def stored_trajectories(source: str | PathLike[str]) -> Iterator[Trajectory]:
    """What a run folder holds, or a JSONL file of trajectories.

    Raises:
        InputError: It is not there or is none of both.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"there is no {str(path)!r}; give the folder of a run, or a JSONL file of its trajectories")
    return RunFolder.open(path).trajectories() if path.is_dir() else read_trajectories(path)


def one_of_each_script(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """The first trajectory of each script, lazily and in their order."""
    seen = set[str]()
    for one in trajectories:
        if (digest := one.script.digest) not in seen:
            seen.add(digest)
            yield one


def _scripted(trajectories: Iterable[Trajectory]) -> Iterator[ScriptedPersona]:
    for one in one_of_each_script(trajectories):
        yield ScriptedPersona(text=one.persona.text, script=one.script)
