"""Make the neighbours' environments under .bench-venvs: some minutes and two gigabytes, once.

python -m bench.rivals.setup
"""

import subprocess
import sys
from pathlib import Path

from bench.rivals.jobs import VENVS

_PACKAGES = {
    # Curator wants torch, whose newest release is not everywhere.
    "curator": ["torch==2.13.0", "bespokelabs-curator==0.1.31"],
    "designer": ["data-designer>=0.9.6,<0.10"],
}


def main() -> None:
    for name, packages in _PACKAGES.items():
        folder = VENVS / name
        complete = folder / "complete"
        if complete.exists():
            continue
        print(f"{folder}: {', '.join(packages)}")
        _run(sys.executable, "-m", "venv", folder)
        for package in packages:
            _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", package)
        complete.touch()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
