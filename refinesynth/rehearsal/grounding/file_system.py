"""A terminal as it is executed: a directory lists its files, and those of other directories cannot be seen."""

from collections.abc import Mapping
from typing import Any

from refinesynth.rehearsal.families.family import Plot, listed
from refinesynth.rehearsal.families.file_system import LAWS
from refinesynth.rehearsal.grounding.form import Form, noted

_WHERE = LAWS.whereabouts


def _furnish(plot: Plot, state: dict[str, Any]) -> None:
    """Directories list what is in them, and files have lines to show."""
    files: dict[str, Any] = state["files"]
    _mend(plot, files)
    directories: dict[str, Any] = state["directories"]
    for name, directory in directories.items():
        directory["up"] = directory["parent"] or "none"
        directory["holds"] = [below for below, one in directories.items() if one["parent"] == name]
        directory["files"] = noted(file for file, one in files.items() if one["directory"] == name)
    for file in files.values():
        settings = [f"{key}={value}" for key, value in file["settings"].items()]
        file["text"] = noted(settings or [f"{file['lines']} lines of text"])
    state["settings"] = {"keys": list(plot.values["key"]), "values": list(plot.values["value"])}


def _mend(plot: Plot, files: dict[str, Any]) -> None:
    """On the way to the goal there are the settings, something read-only and something writable, so that every action is of use."""
    start: str = plot.state["terminal"]["cwd"]
    way = {start, *(values["directory"] for key, values in plot.useful if key == "cd")}
    spare = [file for name, file in files.items() if name not in plot.goal]
    for file in files.values():
        if file["settings"] and file["directory"] not in way:
            file["directory"] = start
    for read_only in (True, False):
        if not any(file["directory"] in way and file["read_only"] is read_only for file in files.values()):
            # Rather one that nobody comes by.
            min(spare, key=lambda file: file["directory"] in way).update(directory=start, read_only=read_only)


def _told(plot: Plot, state: Mapping[str, Any]) -> str:
    """The introduction, with the files where they are now."""
    told, _, _ = plot.introduction.partition(f" {_WHERE} ")
    where = [f"{name} in {file['directory']}" for name, file in state["files"].items()]
    return f"{told} {_WHERE} {listed(where)}."


def _losable(plot: Plot) -> bool:
    """A writable file that is still wanted can be deleted."""
    wanted = [name for name in plot.state["files"] if f"delete {name}" not in plot.goal and name in plot.goal]
    return any(not plot.state["files"][name]["read_only"] for name in wanted)


FILE_SYSTEM = Form(
    laws=LAWS,
    furnish=_furnish,
    told=_told,
    losable=_losable,
    away=lambda plot: any(
        one["directory"] != plot.state["terminal"]["cwd"]
        for name, one in plot.state["files"].items()
        if name in plot.goal
    ),
)
