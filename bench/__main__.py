"""Run every program, print one table, and write it into docs/benchmarks.md.

python -m bench [--quick] [NAME ...]
"""

import argparse
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from bench.figures import Figure, Section, table
from bench.rivals.jobs import VENVS

PROGRAMS = ("startup", "verification", "calls", "engine", "throughput", "memory", "rivals")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- measured: python -m bench -->", "<!-- /measured -->"
PACKAGES = ("litellm", "pydantic-ai-slim", "pydantic", "aiohttp", "orjson", "anyio")


def main() -> int:
    """0 if every program ran, whatever it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"only some of {', '.join(PROGRAMS)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; the page stays as it is")
    asked = parser.parse_args()
    if unknown := set(asked.programs) - set(PROGRAMS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    chosen = [name for name in PROGRAMS if not asked.programs or name in asked.programs]
    about, start = surroundings(), time.monotonic()
    sections = [_section(name, quick=asked.quick) for name in chosen]
    minutes = (time.monotonic() - start) / 60
    report = f"{about} {minutes:.1f} minutes.\n\n{table(sections)}\n"
    print(f"\n{report}")
    if len(chosen) == len(PROGRAMS) and not asked.quick:
        _write(f"{report}\n" + "\n\n".join(f"**{section.title}.** {section.how}" for section in sections))
    return int(any(figure.value is None for section in sections for figure in section.figures))


def _section(name: str, *, quick: bool) -> Section:
    print(f"{name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.{name}", "--json", str(found), *(["--quick"] if quick else [])]
        ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if ended.returncode == 0:
            return Section.from_json(found.read_bytes())
    failed = Figure(what=f"python -m bench.{name}", value=None, note=f"failed with exit code {ended.returncode}")
    return Section(title=name.capitalize(), how="It failed.", figures=(failed,))


def surroundings() -> str:
    """When, where and with what."""
    now = dt.datetime.now(tz=dt.UTC)
    installed = ", ".join(f"{name} {version(name)}" for name in ("refinesynth", *PACKAGES))
    neighbours = [
        found
        for venv, name in (("curator", "bespokelabs_curator"), ("designer", "data_designer"))
        if (found := _version(venv, name))
    ]
    load = f"load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else ""
    machine = f"{os.cpu_count()} cores of {_processor()}, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{now:%Y-%m-%d %H:%M} UTC, {_commit()}; {machine}, {load}; {', '.join([installed, *neighbours])}."


def _version(venv: str, package: str) -> str | None:
    found = next((VENVS / venv).glob(f"lib/*/site-packages/{package}-*.dist-info"), None)
    return None if found is None else found.name.removesuffix(".dist-info").replace("_", "-")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    told = subprocess.run(["git", "describe", "--always", "--dirty"], check=False, capture_output=True, text=True)
    return f"commit {told.stdout.strip()}" if told.returncode == 0 else "no commit"


def _write(measured: str) -> None:
    """Replace what the page holds between its marks; what is said around them stays."""
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has lost the marks between which this is written: {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{measured}\n\n{END}{after}", encoding="utf-8")
    print(f"written to {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
