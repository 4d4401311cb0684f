"""Records in files: one JSON object a line, compressed or not; and where each stands."""

import zlib
from collections.abc import Generator
from pathlib import Path

import orjson
from zstandard import ZstdError

from refinesynth.errors import InputError
from refinesynth.files.compressed import open_binary
from refinesynth.files.encoding import refuse_other_encodings

TRAJECTORIES = "trajectories.jsonl"
"""What a run folder keeps its accepted trajectories in."""

_BOM = b"\xef\xbb\xbf"
"""What some editors write before UTF-8."""

COMPRESSIONS = {".gz": ".gz", ".zst": ".zst", ".zstd": ".zst"}


def records(path: Path, torn: list[str]) -> Generator[tuple[object, str]]:
    """Every record of a file, with `file:line`; read line by line, blank lines left out.

    A last line that is cut off (no newline behind it, and no JSON), as a run that was killed may leave one, is left out
    and its place appended to `torn`; not so where it is all that the file holds, which then is something else.

    Raises:
        InputError: The file cannot be read, or another line is not JSON.
    """
    some = False
    try:
        with open_binary(path, COMPRESSIONS.get(path.suffix)) as lines:
            for number, found in enumerate(lines, start=1):
                if number == 1:
                    refuse_other_encodings(found)
                line = found.removeprefix(_BOM) if number == 1 else found
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    yield orjson.loads(line), where
                    some = True
                except orjson.JSONDecodeError as error:
                    if some and not line.endswith(b"\n"):
                        torn.append(where)
                        return
                    raise InputError(
                        f"{where}: this line is not JSON ({error}); expected one object a line. Fix or remove the line"
                    ) from error
    except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error
