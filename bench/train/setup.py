"""Make other trainers' environments under .parity-venvs: some minutes and four gigabytes, once.

python -m bench.train.setup

`tests/parity` and `python -m bench.train` run them there.
"""

import subprocess
import sys
from pathlib import Path

VENVS = Path(".parity-venvs")
"""Where they are installed, in the folder that the programs are run in."""

COMPLETE = "complete-2"
"""What says that an environment is whole; another name where what is in it has changed."""

_PACKAGES = {
    # The torch that this project is tested with, so that what differs is not torch.
    "trl": ["torch==2.13.0", "trl==1.16.0"],
    "llamafactory": ["torch==2.13.0", "llamafactory==0.9.5"],
    # The newest one whose requirements the index has.
    "tinker": ["torch==2.13.0", "tinker-cookbook==0.5.8"],
    "verifiers": ["verifiers==0.4.0"],
    "openenv": ["openenv==0.10.0"],
}

_WITH_OURS = ("trl", "verifiers", "openenv")
"""Those that act in our worlds."""

_ALONE = {
    # Its data code needs little, and it asks for a GPU's kernels, trackers and clouds besides: four gigabytes.
    "trl": ["axolotl==0.19.0", "addict", "fire", "termcolor", "colorama", "python-dotenv"],
}
"""Installed without what they require."""

_UNUSED = {
    # For pictures and sounds. The index has them for CUDA alone, and beside a torch without it they stop every import.
    "llamafactory": ["torchvision", "torchaudio"],
}


def main() -> None:
    VENVS.mkdir(exist_ok=True)
    # So that git does not see it, whatever .gitignore says.
    (VENVS / ".gitignore").write_text("*\n", encoding="utf-8")
    for name, packages in _PACKAGES.items():
        folder = VENVS / name
        complete = folder / COMPLETE
        if complete.exists():
            continue
        print(f"{folder}: {', '.join(packages)}", flush=True)
        _run(sys.executable, "-m", "venv", folder)
        pip = (folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run(*pip, "install", *packages)
        if name in _ALONE:
            _run(*pip, "install", "--no-deps", *_ALONE[name])
        if name in _UNUSED:
            _run(*pip, "uninstall", "--yes", *_UNUSED[name])
        if name in _WITH_OURS:
            _run(*pip, "install", "--editable", Path(__file__).parents[2])
        complete.touch()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
