"""A small tree of directories at a terminal: move, edit, unlock, compress and delete files where they lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, permutations
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import (
    Act,
    Condition,
    Family,
    Plot,
    State,
    Verb,
    act,
    chance,
    listed,
    logic,
    place,
    quoted,
    sets,
    shuffled,
)
from refinesynth.trajectory import Effect, EffectOp

_DIRECTORIES = ("projects", "reports", "logs", "backup", "archive", "scripts", "drafts", "photos", "invoices", "shared",
                "inbox", "releases", "notes", "music", "exports", "templates")  # fmt: skip
_STEMS = ("budget", "summary", "agenda", "minutes", "draft", "survey", "roster", "journal", "sketch", "recipe", "poem",
          "inventory", "letter", "schedule")  # fmt: skip
_ENDINGS = ("txt", "md", "csv", "log")
_CONFIGS = ("config.cfg", "server.conf", "settings.ini", "app.yaml", "printer.conf", "network.cfg", "editor.ini")
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "mode": ("on", "off", "auto"), "level": ("debug", "info", "error"), "color": ("dark", "light", "sepia"),
    "cache": ("none", "disk", "memory"), "language": ("en", "fr", "sw"), "backup": ("daily", "weekly", "never"),
}  # fmt: skip
_MACHINES = ("a shared workstation in the library", "the office file server", "an old laptop", "the club's web host",
             "a lab computer", "the shop's back-office PC", "a small home server")  # fmt: skip

_EXISTS = logic("file in state.files", "There is no file {file} any more.")
_HERE = place("state.files[file].directory == state.terminal.cwd", "{file} is not in the current directory.")
_WRITABLE = logic("!state.files[file].read_only", "{file} is read-only.")

VERBS = (
    Verb(
        key="cd",
        wordings=("cd {directory}", "enter {directory}", "chdir {directory}", "go into {directory}"),
        about=("Change to the parent directory or to a directory inside the current one, by its name",),
        doing="change to {directory}",
        done=("The current directory is {directory} now.", "Changed to {directory}.", "{directory}$"),
        requires=(
            logic("state.terminal.cwd != directory", "{directory} is the current directory already."),
            place(
                "state.directories[directory].parent == state.terminal.cwd"
                " || state.directories[state.terminal.cwd].parent == directory",
                "{directory} is neither inside the current directory nor its parent.",
            ),
        ),
        effects=(sets("/terminal/cwd", "{directory}"),),
    ),
    Verb(
        key="ls",
        wordings=("ls", "list files", "dir", "show contents"),
        about=("List what is in the current directory",),
        doing="list the current directory",
        done=("A listing of the current directory.", "Listing the current directory."),
    ),
    Verb(
        key="cat",
        wordings=("cat {file}", "print {file}", "view {file}", "less {file}"),
        about=("Show a file of the current directory",),
        doing="look into {file}",
        done=("{file}:", "Contents of {file}:", "This is {file}:"),
        requires=(_EXISTS, _HERE),
    ),
    Verb(
        key="mv",
        wordings=("mv {file} {directory}", "move {file} to {directory}", "transfer {file} into {directory}"),
        about=("Move a file of the current directory to any directory",),
        doing="move {file} to {directory}",
        done=("{file} is in {directory} now.", "Moved {file} to {directory}."),
        requires=(
            _EXISTS,
            _HERE,
            logic("state.files[file].directory != directory", "{file} is in {directory} already."),
        ),
        effects=(sets("/files/{file}/directory", "{directory}"),),
    ),
    Verb(
        key="edit",
        wordings=("set {key}={value} in {file}", "edit {file} {key}={value}", "write {key}={value} to {file}"),
        about=("Change a setting in a file of the current directory that is writable",),
        doing="set {key}={value} in {file}",
        done=("{file} says {key}={value} now.", "Saved {file} with {key}={value}.", "1 line of {file} changed."),
        requires=(
            _EXISTS,
            _HERE,
            logic("key in state.files[file].settings", "{file} has no setting {key}."),
            logic("state.files[file].settings[key] != value", "{key} is {value} in {file} already."),
            _WRITABLE,
        ),
        effects=(sets("/files/{file}/settings/{key}", "{value}"),),
    ),
    Verb(
        key="unlock",
        wordings=("chmod +w {file}", "unlock {file}", "make {file} writable"),
        about=("Make a read-only file of the current directory writable",),
        doing="make {file} writable",
        done=("{file} is writable now.", "Write permission set on {file}."),
        requires=(_EXISTS, _HERE, logic("state.files[file].read_only", "{file} is writable already.")),
        effects=(sets("/files/{file}/read_only", False),),
    ),
    Verb(
        key="zip",
        wordings=("gzip {file}", "compress {file}", "zip {file}"),
        about=("Compress a file of the current directory",),
        doing="compress {file}",
        done=("{file} is compressed now.", "Compressed {file}; it takes a third of the space."),
        requires=(_EXISTS, _HERE, logic("!state.files[file].compressed", "{file} is compressed already."), _WRITABLE),
        effects=(sets("/files/{file}/compressed", True),),
    ),
    Verb(
        key="rm",
        wordings=("rm {file}", "delete {file}", "erase {file}"),
        about=("Delete a file of the current directory that is writable",),
        doing="delete {file}",
        done=("{file} is gone.", "Deleted {file}."),
        requires=(_EXISTS, _HERE, _WRITABLE),
        effects=(Effect(op=EffectOp.REMOVE, path="/files/{file}"),),
    ),
)  # fmt: skip


def see(state: State, key: str, values: Mapping[str, str]) -> str:
    """A listing after `cd` and `ls`, the settings after `cat`."""
    if key == "cat":
        file = state["files"][values["file"]]
        lines = [f"{name}={value}" for name, value in file["settings"].items()]
        return ", ".join(lines) or f"{file['lines']} lines of text, no settings."
    if key not in {"cd", "ls"}:
        return ""
    cwd: str = state["terminal"]["cwd"]
    inside = [f"{name}/" for name, directory in state["directories"].items() if directory["parent"] == cwd]
    parent = state["directories"][cwd]["parent"]
    files = [_described(name, file) for name, file in state["files"].items() if file["directory"] == cwd]
    up = f" The parent is {parent}." if parent else ""
    return f"In {cwd}: {', '.join([*inside, *files]) or 'nothing'}.{up}"


def _described(name: str, file: State) -> str:
    marks = [word for word, key in (("read-only", "read_only"), ("compressed", "compressed")) if file[key]]
    return f"{name} ({', '.join(marks)})" if marks else name


@dataclass(frozen=True)
class _Job:
    """One thing to get done with one file, from within its directory."""

    file: str
    phrase: str
    sentence: str
    cel: str
    acts: tuple[Act, ...]


def draw(rng: Random) -> Plot:
    """A tree of seven directories with seven files, of which one to three need attention: five to nine steps."""
    while True:
        parents = _tree(rng)
        names = tuple(parents)
        config = rng.choice(_CONFIGS)
        files = _files(rng, names, config)
        start = rng.choice(names)
        jobs = rng.sample(_jobs(rng, files, config, names), rng.choice((1, 2, 2, 3)))
        if 5 <= _steps(parents, files, start, jobs) <= 9:  # noqa: PLR2004 - the length of an episode
            break
    directories = {name: {"parent": parents[name]} for name in shuffled(rng, names)}
    keys = tuple(files[config]["settings"])
    return Plot(
        introduction=_introduction(rng, parents, start, files),
        state={"terminal": {"cwd": start}, "directories": directories, "files": files},
        goal=listed([job.phrase for job in jobs]),
        conditions=tuple(Condition(cel=job.cel, sentence=job.sentence) for job in jobs),
        values={
            "directory": names,
            "file": tuple(files),
            "key": keys,
            "value": tuple(dict.fromkeys(value for key in keys for value in _SETTINGS[key])),
        },
        absent={
            "directory": tuple(name for name in ("tmp", "etc", *_DIRECTORIES) if name not in names)[:8],
            "file": tuple(f"{name.split('.')[0]}.bak" for name in files),
            "key": tuple(key for key in _SETTINGS if key not in keys),
            "value": ("enabled", "true", "default"),
        },
        useful=tuple(_useful(parents, files, start, jobs)),
    )


def _tree(rng: Random) -> dict[str, str]:
    """Directory to its parent: a root, three directories in it, and three more in those."""
    root = rng.choice(("home", "root", "srv", "workspace"))
    names = rng.sample(_DIRECTORIES, 6)
    return {root: "", **dict.fromkeys(names[:3], root), **{name: rng.choice(names[:3]) for name in names[3:]}}


def _files(rng: Random, directories: tuple[str, ...], config: str) -> dict[str, Any]:
    names = [config, *(f"{stem}.{rng.choice(_ENDINGS)}" for stem in rng.sample(_STEMS, 6))]
    files: dict[str, Any] = {
        name: {
            "directory": rng.choice(directories),
            "lines": rng.randrange(3, 400),
            "read_only": chance(rng, 0.3),
            "compressed": False,
            "settings": {},
        }
        for name in shuffled(rng, names)
    }
    files[config]["settings"] = {key: rng.choice(_SETTINGS[key]) for key in rng.sample(sorted(_SETTINGS), 2)}
    return files


def _jobs(rng: Random, files: State, config: str, directories: tuple[str, ...]) -> list[_Job]:
    """An edit of the configuration, and for each of four more files something else."""
    key, old = next(iter(files[config]["settings"].items()))
    new = rng.choice([value for value in _SETTINGS[key] if value != old])
    moved, gone, squeezed, both = [name for name in files if name != config][:4]
    to, other = (rng.choice([one for one in directories if one != files[file]["directory"]]) for file in (moved, both))
    return [
        _Job(
            config,
            f"set {key} to {new} in {config}",
            f"{config} says {key}={new}.",
            f"{_cel(config)}.settings[{quoted(key)}] == {quoted(new)}",
            (*_unlocking(files, config), act("edit", key=key, value=new, file=config)),
        ),
        _Job(
            moved,
            f"move {moved} to {to}",
            f"{moved} is in {to}.",
            f"{_cel(moved)}.directory == {quoted(to)}",
            (act("mv", file=moved, directory=to),),
        ),
        _Job(
            gone,
            f"delete {gone}",
            f"{gone} does not exist.",
            f"!({quoted(gone)} in state.files)",
            (*_unlocking(files, gone), act("rm", file=gone)),
        ),
        _Job(
            squeezed,
            f"compress {squeezed}",
            f"{squeezed} is compressed.",
            f"{_cel(squeezed)}.compressed",
            (*_unlocking(files, squeezed), act("zip", file=squeezed)),
        ),
        _Job(
            both,
            f"compress {both} and move it to {other}",
            f"{both} is compressed and in {other}.",
            f"{_cel(both)}.compressed && {_cel(both)}.directory == {quoted(other)}",
            (*_unlocking(files, both), act("zip", file=both), act("mv", file=both, directory=other)),
        ),
    ]


def _cel(file: str) -> str:
    return f"state.files[{quoted(file)}]"


def _unlocking(files: State, file: str) -> tuple[Act, ...]:
    return (act("unlock", file=file),) if files[file]["read_only"] else ()


def _path(parents: Mapping[str, str], start: str, end: str) -> list[str]:
    """The directories to change to, one after the other, to get from `start` to `end`."""
    above = [start]
    while parents[above[-1]]:
        above.append(parents[above[-1]])
    below = [end]
    while below[-1] not in above:
        below.append(parents[below[-1]])
    return [*above[1 : above.index(below[-1]) + 1], *reversed(below[:-1])]


def _steps(parents: Mapping[str, str], files: State, start: str, jobs: list[_Job]) -> int:
    """Length of the shortest way to get all jobs done."""
    acts = sum(len(job.acts) for job in jobs)
    rounds = permutations(files[job.file]["directory"] for job in jobs)
    return acts + min(sum(len(_path(parents, *leg)) for leg in pairwise((start, *stops))) for stops in rounds)


def _useful(parents: Mapping[str, str], files: State, start: str, jobs: list[_Job]) -> Iterator[Act]:
    stops = [start, *(files[job.file]["directory"] for job in jobs)]
    ways = {name for one, other in permutations(stops, 2) for name in _path(parents, one, other)}
    for name in sorted(ways):
        yield act("cd", directory=name)
    for job in jobs:
        yield from job.acts


def _introduction(rng: Random, parents: Mapping[str, str], start: str, files: State) -> str:
    inside = [
        f"{name} holds {listed(below)}"
        for name in parents
        if (below := [child for child, parent in parents.items() if parent == name])
    ]
    where = [f"{name} in {file['directory']}" for name, file in files.items()]
    return (
        f"You are at a terminal of {rng.choice(_MACHINES)}; the current directory is {start}. "
        f"Of the directories, {'; '.join(inside)}. The files are {listed(where)}."
    )


FILE_SYSTEM = Family(
    name="files",
    verbs=VERBS,
    draw=draw,
    see=see,
    refusals=("Error:", "Command failed:", "Refused:", "sh:"),
)
