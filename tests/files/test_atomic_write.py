"""A file is the old one or the new one, whatever happens while it is written."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from refinesynth.errors import InputError, StorageError
from refinesynth.files.atomic_write import (
    atomic_write,
    exclusive_access,
    is_temporary,
    output_file,
    write_file,
    write_text_file,
)

KILLED = """
import sys, time
from functools import partial
from pathlib import Path
from refinesynth.files.atomic_write import exclusive_access, atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"new")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.process
def test_what_a_killed_process_leaves_is_the_old_file_and_known_as_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.read_bytes() == b"old"
    (left,) = [name for name in names(tmp_path) if name != "file"]
    assert is_temporary(left, "file")
    assert not is_temporary(left, "other")
    assert not is_temporary("file", "file")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(*(Path, "replace") if call == "replace" else (os, "fsync"), fails)
    with pytest.raises(StorageError, match=r"'.*/file' cannot be written: No space left on device"):
        write_file(path, b"new")
    with pytest.raises(InputError, match=r"cannot write .*No space left"), output_file(path, overwrite=True) as file:
        file.write(b"new")
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "file") as file:
        file.writelines(half())
    assert names(tmp_path) == []


def test_several_writers_at_once_leave_one_of_their_files_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(write_file, path), contents * 4))
    assert names(path.parent) == ["file"]
    assert path.read_bytes() in contents


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    write_text_file(tmp_path / "file", "half a character: \ud800")
    assert (tmp_path / "file").read_text() == "half a character: \ufffd"
    assert (tmp_path / "other").read_bytes() == b"other"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        write_file(tmp_path / "there", b"x")
    assert names(tmp_path) == ["there"]


def test_a_lock_may_be_nested_and_is_for_one_path(tmp_path: Path) -> None:
    with (
        exclusive_access(tmp_path / "one"),
        exclusive_access(tmp_path / "other"),
        output_file(tmp_path / "one") as file,
    ):
        file.write(b"1")
    assert names(tmp_path) == ["one"]
