"""Grounded play: every program of it, one table.

python -m bench.grounded [--quick] [--data FOLDER] [--json FILE]

FOLDER is AgentBoard's `pddl` folder, which is not ours to ship; without it, or without pddlgym (python -m
bench.grounded.pddl_setup), the comparison of known worlds is left out.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, Section, table
from bench.grounded.pddl import KNOWN_WORLDS, missing

PROGRAMS = ("steps", "fidelity")


def main() -> int:
    """0 if every program that can be run here ran, whatever it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, for a first look")
    parser.add_argument("--data", type=Path, help="AgentBoard's pddl folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file, as one section")
    asked = parser.parse_args()
    quick = ("--quick",) if asked.quick else ()
    sections = [_section(name, quick) for name in PROGRAMS]
    sections.append(_known_worlds(asked.data, quick))
    print("\n\n".join(f"**{section.title}.** {section.how}" for section in sections))
    print(f"\n{table(sections)}")
    if asked.json is not None:
        asked.json.write_bytes(_together(sections).to_json())
    return int(any(_failed(figure) for section in sections for figure in section.figures))


def _known_worlds(data: Path | None, quick: Sequence[str]) -> Section:
    why = "no data: --data names AgentBoard's pddl folder" if data is None else missing(data)
    if data is None or why is not None:
        figure = Figure(what="disagreements with pddlgym", value=None, note=f"skipped: {why}")
        return Section(title=KNOWN_WORLDS, how="It was skipped.", figures=(figure,))
    return _section("pddl", (*quick, "--data", str(data.absolute())))


def _section(name: str, options: Sequence[str]) -> Section:
    print(f"{name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.grounded.{name}", "--json", str(found), *options]
        ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        # One that found what it should not still wrote its figures.
        if found.exists():
            return Section.from_json(found.read_bytes())
    note = f"failed with exit code {ended.returncode}"
    figure = Figure(what=f"python -m bench.grounded.{name}", value=None, note=note)
    return Section(title=name.capitalize(), how="It failed.", figures=(figure,))


def _failed(figure: Figure) -> bool:
    return figure.value is None and not figure.note.startswith("skipped")


def _together(sections: Sequence[Section]) -> Section:
    """All of them as one, for a table of everything."""
    return Section(
        title="Grounded play",
        how=" ".join(section.how for section in sections),
        figures=tuple(figure for section in sections for figure in section.figures),
    )


if __name__ == "__main__":
    sys.exit(main())
