"""Compressed files are read in pieces of bounded size, whole or with an error."""

import tracemalloc
from pathlib import Path

import pytest
import zstandard

from refinesynth.files.compressed import open_binary

MIB = 1 << 20


def test_a_small_file_that_unpacks_to_much_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.compress(bytes(192 * MIB)))
    assert path.stat().st_size < 32_000
    tracemalloc.start()
    try:
        with open_binary(path, ".zst") as file:
            size = sum(len(piece) for piece in iter(lambda: file.read(65_536), b""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 192 * MIB
    assert peak < 48 * MIB


@pytest.mark.parametrize("size", [0, 1, 1_000, 3 * MIB])
def test_frames_that_follow_each_other_are_one_file(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    path = tmp_path / "frames.zst"
    path.write_bytes(zstandard.compress(content) + zstandard.compress(b"end"))
    with open_binary(path, ".zst") as file:
        assert file.read() == content + b"end"
    path.write_bytes(zstandard.compress(content)[:-1])
    with open_binary(path, ".zst") as file, pytest.raises(EOFError, match="cut off"):
        file.read()
