"""An S3 server on this machine, and caches that stand for machines."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from s3_server import serving

from refinesynth.files.output_folder import CACHE
from refinesynth.stores import run_output


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """The environment in which there is a bucket."""
    with serving(0) as port:
        with urlopen(Request(f"http://127.0.0.1:{port}/bucket", method="PUT")) as answer:
            assert answer.status == 200
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        }


@pytest.fixture
def bucket(s3: dict[str, str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a run that is not there yet."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/runs/{request.node.name}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Go to the machine of this name: another cache."""

    def go(name: str) -> Path:
        monkeypatch.setenv(CACHE, str(tmp_path / name))
        return tmp_path / name

    go("one")
    return go


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_output, "UPLOAD_INTERVAL", 0.05)
    monkeypatch.setattr(run_output, "_RETRY_S", 0.05)
    monkeypatch.setattr(run_output, "LEASE", 1.0)
    monkeypatch.setattr(run_output, "_POLL_S", 0.05)
    assert not os.environ.get("AWS_PROFILE")
