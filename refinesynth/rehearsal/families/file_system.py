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
    act,
    chance,
    listed,
    quoted,
    read_laws,
    shuffled,
)

LAWS = read_laws("files")
_WORDS = LAWS.words


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
        config = rng.choice(_WORDS["configs"])
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
            "value": tuple(dict.fromkeys(value for key in keys for value in _WORDS[key])),
        },
        absent={
            "directory": tuple(name for name in ("tmp", "etc", *_WORDS["directories"]) if name not in names)[:8],
            "file": tuple(f"{name.split('.')[0]}.bak" for name in files),
            "key": tuple(key for key in _WORDS["keys"] if key not in keys),
            "value": ("enabled", "true", "default"),
        },
        useful=tuple(_useful(parents, files, start, jobs)),
    )


def _tree(rng: Random) -> dict[str, str]:
    """Directory to its parent: a root, three directories in it, and three more in those."""
    root = rng.choice(("home", "root", "srv", "workspace"))
    names = rng.sample(_WORDS["directories"], 6)
    return {root: "", **dict.fromkeys(names[:3], root), **{name: rng.choice(names[:3]) for name in names[3:]}}


def _files(rng: Random, directories: tuple[str, ...], config: str) -> dict[str, Any]:
    names = [config, *(f"{stem}.{rng.choice(_WORDS['endings'])}" for stem in rng.sample(_WORDS["stems"], 6))]
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
    files[config]["settings"] = {key: rng.choice(_WORDS[key]) for key in rng.sample(sorted(_WORDS["keys"]), 2)}
    return files


def _jobs(rng: Random, files: State, config: str, directories: tuple[str, ...]) -> list[_Job]:
    """An edit of the configuration, and for each of four more files something else."""
    key, old = next(iter(files[config]["settings"].items()))
    new = rng.choice([value for value in _WORDS[key] if value != old])
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
        f"You are at a terminal of {rng.choice(_WORDS['machines'])}; the current directory is {start}. "
        f"Of the directories, {'; '.join(inside)}. The files are {listed(where)}."
    )


FILE_SYSTEM = Family(name=LAWS.name, verbs=LAWS.verbs, draw=draw, see=see, refusals=LAWS.refusals)
