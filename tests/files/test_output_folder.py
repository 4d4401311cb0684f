"""One folder, one run."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.output_folder import LOCK_FILE, FolderLock, read_holder

HOLDER = """
import sys, time
from pathlib import Path
from refinesynth.files.output_folder import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_two_runs_of_one_process_are_kept_apart(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        with (
            pytest.raises(RunFolderError, match=rf"process {os.getpid()} on .* since .*another folder"),
            FolderLock(tmp_path),
        ):
            pass
        # The one that was refused has taken nothing away.
        with pytest.raises(RunFolderError), FolderLock(tmp_path):
            pass
    with FolderLock(tmp_path):
        pass


def test_a_block_that_fails_gives_the_folder_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), FolderLock(tmp_path):
        raise ZeroDivisionError
    with FolderLock(tmp_path):
        pass


@pytest.mark.process
def test_a_live_process_is_named_and_a_killed_one_is_forgotten(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(RunFolderError, match=f"process {process.pid} on"), FolderLock(tmp_path):
            pass
        process.kill()
        process.wait()
    with FolderLock(tmp_path):
        holder = read_holder(tmp_path)
        assert holder is not None
        assert holder.pid == os.getpid()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'{"pid":"x"}', b"9" * 5_000])
def test_what_the_file_says_does_not_matter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK_FILE).write_bytes(content)
    with FolderLock(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(content)
        assert read_holder(tmp_path) is None
        with pytest.raises(RunFolderError, match="in use by another run"), FolderLock(tmp_path):
            pass


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder"), FolderLock(tmp_path / "missing"):
        pass
    assert not (tmp_path / "missing").exists()


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError), FolderLock(tmp_path / "run"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65_534)
        try:
            with pytest.raises(StorageError, match="cannot be locked"), FolderLock(folder):
                pass
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
