"""A real pretrained model, SmolLM2-135M-Instruct: its weights, its tokens, a training and an evaluation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import real_model

pytest.importorskip("gguf", reason="needs the extra gguf")
pytest.importorskip("inspect_ai", reason="needs the extra evaluate")


pytestmark = [
    pytest.mark.train,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
]
END = "<|im_end|>"


@pytest.fixture
def smol(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The GGUF file; it is unpacked once for all runs of the tests."""
    try:
        path = real_model.smollm2()
    except OSError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("REFINESYNTH_CACHE", str(real_model.cache()))
    return path


FEWER = {
    "pip install 'refinesynth[gguf,evaluate]'": ":",
    "-n 32": "-n 4",
    "-n 8": "-n 4",
    "--max-steps 20": "--max-steps 1",
    "--limit 4 --steps 6 --max-tokens 48": "--limit 1 --steps 1 --max-tokens 4",
}
"""Shorter forms of the demonstration's commands."""


@pytest.mark.usefixtures("smol")
def test_the_demonstration_of_the_docs_runs(tmp_path: Path, warm: Path):
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    code = page.partition("## A real model on a CPU")[2].partition("```bash\n")[2].partition("```")[0]
    for written, shorter in FEWER.items():
        assert written in code
        code = code.replace(written, shorter)
    programs = f"{warm}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": programs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "hf/real" in done.stdout
