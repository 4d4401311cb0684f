"""A file system: files in a tree of directories, which are moved, edited, compressed and deleted."""

from collections.abc import Mapping
from itertools import pairwise, permutations
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled
from refinesynth.rehearsal.families.maps import STEPS

_WRITING = frozenset({"edit", "delete", "compress", "pack"})
"""Parts that need a writable file."""


def draw_files(family: Family, rng: Random) -> Plot:
    """A tree of seven directories and seven files, of which one to three must be changed."""
    while True:
        parents = _tree(rng, family.words)
        files = _files(rng, family.words, tuple(parents))
        config = next(name for name, file in files.items() if file["settings"])
        start = rng.choice(list(parents))
        task = [part for (part,) in rng.sample(family.tasks, rng.choice((1, 2, 2, 3)))]
        subjects: dict[str, str] = dict(
            zip(("move", "delete", "compress", "pack"), (name for name in files if name != config), strict=False)
        )
        wanted = {part: subjects.get(part, config) for part in task}
        locked = [file for part, file in wanted.items() if part in _WRITING and files[file]["read_only"]]
        at = [files[file]["directory"] for file in wanted.values()]
        acts = len(task) + ("pack" in task) + len(locked)
        ways = {name for one, end in permutations([start, *at], 2) for name in _path(parents, one, end)}
        passed = [file for file in files.values() if file["directory"] in ways | {start}]
        # Every kind of action has an effect on the way to the goal.
        useful = files[config] in passed and len({file["read_only"] for file in passed}) > 1
        if useful and acts + _least(parents, start, at) in STEPS:
            break
    key, old = next(iter(files[config]["settings"].items()))
    to, other = (
        rng.choice([name for name in parents if name != files[subjects[part]]["directory"]])
        for part in ("move", "pack")
    )
    below = {name: [child for child, parent in parents.items() if parent == name] for name in parents}
    state = _state(rng, family.words, files, parents, start)
    return family.plot(
        state,
        names={
            "machine": rng.choice(family.words["machines"]),
            "start": start,
            "directories": "; ".join(f"{name} holds {listed(inside)}" for name, inside in below.items() if inside),
            "config": config,
            "key": key,
            "new": rng.choice([value for value in family.words[key] if value != old]),
            **subjects,
            "to": to,
            "other": other,
            "where": listed(
                [f"{name} in {file['directory']}{' (read-only)' * file['read_only']}" for name, file in files.items()]
            ),
        },
        parts=task,
        values={
            "directory": tuple(parents),
            "file": tuple(files),
            "key": tuple(state["settings"]["keys"]),
            "value": tuple(state["settings"]["values"]),
        },
        acts=[
            *(("cd", {"directory": name}) for name in sorted(ways)),
            *(("unlock", {"file": file}) for file in locked),
        ],
        # A writable file that is still wanted can be deleted.
        losable=any(part != "delete" and not files[file]["read_only"] for part, file in wanted.items()),
        away=any(name != start for name in at),
    )


def _tree(rng: Random, words: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Directory to its parent: a root, three directories in it, and three more in those."""
    names = rng.sample(words["directories"], 6)
    root = rng.choice(words["roots"])
    return {root: "", **dict.fromkeys(names[:3], root), **{name: rng.choice(names[:3]) for name in names[3:]}}


def _files(rng: Random, words: Mapping[str, tuple[str, ...]], directories: tuple[str, ...]) -> dict[str, Any]:
    config = rng.choice(words["configs"])
    names = [config, *(f"{stem}.{rng.choice(words['endings'])}" for stem in rng.sample(words["stems"], 6))]
    files: dict[str, Any] = {
        name: {"directory": rng.choice(directories), "read_only": chance(rng, 0.3), "compressed": False, "settings": {}}
        for name in shuffled(rng, names)
    }
    files[config]["settings"] = {key: rng.choice(words[key]) for key in rng.sample(words["keys"], 2)}
    return files


def _state(
    rng: Random, words: Mapping[str, tuple[str, ...]], files: dict[str, Any], parents: Mapping[str, str], start: str
) -> dict[str, Any]:
    for file in files.values():
        settings = [f"{key}={value}" for key, value in file["settings"].items()]
        file["text"] = noted(settings or [f"{rng.randrange(3, 400)} lines of text"])
    keys = [key for file in files.values() for key in file["settings"]]
    return {
        "terminal": {"cwd": start},
        "directories": {
            name: {
                "parent": parents[name],
                "up": parents[name] or "none",
                "holds": [child for child, parent in parents.items() if parent == name],
                "files": noted(file for file, one in files.items() if one["directory"] == name),
            }
            for name in shuffled(rng, list(parents))
        },
        "files": files,
        "settings": {"keys": keys, "values": list(dict.fromkeys(value for key in keys for value in words[key]))},
    }


def _path(parents: Mapping[str, str], start: str, end: str) -> list[str]:
    above = [start]
    while parents[above[-1]]:
        above.append(parents[above[-1]])
    below = [end]
    while below[-1] not in above:
        below.append(parents[below[-1]])
    return [*above[1 : above.index(below[-1]) + 1], *reversed(below[:-1])]


def _least(parents: Mapping[str, str], start: str, stops: list[str]) -> int:
    return min(sum(len(_path(parents, *leg)) for leg in pairwise((start, *order))) for order in permutations(stops))
