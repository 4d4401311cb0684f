"""Make pddlgym's environment under .bench-venvs: a minute, once. It needs Python 3.12 or older.

python -m bench.grounded.pddl_setup
"""

import subprocess
import sys
from pathlib import Path

VENV = Path(".bench-venvs") / "pddl"
"""Where it is installed, in the folder that the programs are run in."""

PACKAGE = "pddlgym==0.0.7"


def python_of(venv: Path) -> Path:
    """The interpreter of a virtual environment."""
    return venv.absolute() / "bin" / "python"


def main() -> None:
    complete = VENV / "complete"
    if complete.exists():
        return
    if sys.version_info >= (3, 13):
        raise SystemExit("pddlgym 0.0.7 fails on Python 3.13 and newer: run this with Python 3.11 or 3.12")
    print(f"{VENV}: {PACKAGE}")
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([python_of(VENV), "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    complete.touch()


if __name__ == "__main__":
    main()
