"""docs/backends.md says what is so: every setting, and what a run makes of each server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from run_records import events
from server_manners import SERVERS, Mannered
from typer.testing import CliRunner

from refinesynth.backends import Backend
from refinesynth.cli import app
from refinesynth.serve import create_app, running
from refinesynth.synthesis import SynthesisResult

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
UNSET = ("the provider's", "no limit", "no bound", "litellm's price map")
"""Words for None."""


def rows(first: str) -> Iterator[list[str]]:
    """The cells of the table whose first column is called so."""
    table = PAGE.split(f"| {first} |", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_every_setting_is_listed_with_its_default() -> None:
    fields: dict[str, Any] = {
        name: field for name, field in Backend.model_fields.items() if name not in {"model", "name"}
    }
    listed = {name.strip("`"): default for name, _, default, _ in rows("setting")}
    assert list(listed) == list(fields)
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        if default is None:
            assert listed[name].startswith(UNSET), name
        else:
            said = listed[name].strip("`")
            assert Backend.model_validate(
                {"model": "m", name: orjson.loads(said) if said[0] in "{0123456789tf" else said}
            ) == (Backend(model="m")), name


@pytest.mark.process
@pytest.mark.parametrize("row", list(rows("server")), ids=lambda row: row[0])
def test_a_run_makes_of_a_server_what_its_row_says(row: list[str], tmp_path: Path) -> None:
    server, _, lacks, give = row
    settings = [part for setting in re.findall(r"`([^`]+)`", give) for part in ("--set", setting)]
    with running(create_app(Mannered(SERVERS[server]))) as address:
        place = ["--backend", "hosted_vllm/any", "--set", f"base_url={address}/v1", *settings]
        asked = ["run", "-n", "3", "--player-form", "tools", "--concurrency", "1", "-o", str(tmp_path / "run"), *place]
        result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.stderr
    run = SynthesisResult.open(tmp_path / "run")
    found = {event["lacks"] for event in events(run.path, "goes_without")}
    assert found == set(re.findall(r"`([^`]+)`", lacks))
    assert {one.provenance.player_form for one in run} == {None if "tools" in found else "tools"}


def test_every_server_has_its_row() -> None:
    assert [server for server, *_ in rows("server")] == list(SERVERS)
