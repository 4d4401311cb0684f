"""What a training is given by name is looked for before anything is imported, and what is here before a hub is
asked."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from train_values import a_config

from refinesynth.errors import InputError
from refinesynth.train import Trainer, inputs
from refinesynth.train.inputs import check_inputs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a hub was asked for; it has everything."""
    names: list[str] = []

    def seek(name: str, revision: str | None = None) -> bool:
        names.append(name if revision is None else f"{name} at {revision}")
        return True

    monkeypatch.setattr("refinesynth.train.inputs.find_on_hub", seek)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "trajectories.jsonl").touch()
    (tmp_path / "model.bin").touch()
    return names


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": ["runs/nothere"]}, "there is no file or folder 'runs/nothere'"),
        ({"data": ["runs/first", "a/b.jsonl"]}, "there is no file or folder 'a/b.jsonl'"),
        ({"data": ["runs"]}, "no file or folder 'runs/trajectories.jsonl'"),
        ({"chat_template": "lama-3"}, "'lama-3' is none of llama-3, chatml, react, and as a file"),
        ({"deepspeed": "none.json"}, "none.json"),
        ({"model": "model.bin"}, "'model.bin' is a file; expected a folder"),
        ({"tokenizer": "model.bin"}, "'model.bin' is a file; expected a folder"),
    ],
)
def test_what_is_not_here_is_said_before_a_hub_is_asked(
    fields: dict[str, Any], message: str, asked: list[object]
) -> None:
    fields = {"model": "some/hub-name", "data": ["runs/first"], "output": "out", **fields}
    trainer = Trainer(**fields)
    for look in (trainer.preview, trainer.plan, trainer.train):
        with pytest.raises(InputError, match=message):
            look()
    assert asked == []
    assert not Path("out").exists()


def test_scratch_is_asked_for_nowhere(asked: list[object]) -> None:
    check_inputs(a_config(data=["runs/first"], model="z/model", tokenizer="a/tokenizer"))
    assert asked == ["a/tokenizer", "z/model"]
    asked.clear()
    check_inputs(a_config(data=["runs/first"], model="scratch"))
    check_inputs(a_config(data=["runs/nothere"], model="scratch"), sources=[{"id": "in memory"}])
    assert asked == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"revision": "v1"}, ["a/b at v1"]), ({"revision": "v1", "tokenizer": "c/d"}, ["a/b at v1", "c/d"])],
)
def test_a_hub_is_asked_for_the_revision(fields: dict[str, Any], expected: list[str], asked: list[str]) -> None:
    check_inputs(a_config(data=["runs/first"], model="a/b", **fields))
    assert asked == expected


@pytest.mark.parametrize("fields", [{"model": "scratch", "revision": "v1"}, {"model": "runs", "revision": "v1"}])
def test_what_is_here_has_no_revision(fields: dict[str, Any], asked: list[object]) -> None:
    with pytest.raises(InputError, match="has no revision 'v1'"):
        check_inputs(a_config(data=["runs/first"], **fields))
    assert asked == []


@pytest.mark.process
def test_torch_is_not_imported_to_look() -> None:
    program = """
import sys
import refinesynth.train
from refinesynth.errors import InputError
from refinesynth.train import Trainer
for name in refinesynth.train.__all__:
    getattr(refinesynth.train, name)
for look in ("preview", "plan", "train"):
    try:
        getattr(Trainer(recipe="lora", model="m", data="no such data", output="out"), look)()
    except InputError as error:
        assert "no such data" in str(error)
print([name for name in ("torch", "transformers", "datasets", "huggingface_hub") if name in sys.modules])
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# The hub.


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Exception | None], list[str]]:
    """Puts a double in the hub's place, which answers or raises; gives the names that it was asked for."""
    inputs.find_on_hub.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def put(raised: Exception | None) -> list[str]:
        names: list[str] = []

        def repo_info(_self: object, name: str, *, revision: str | None, timeout: float) -> None:
            assert timeout > 0
            huggingface_hub.utils.validate_repo_id(name)
            names.append(name if revision is None else f"{name} at {revision}")
            if raised is not None:
                raise raised

        monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", repo_info)
        return names

    return put


def refused(kind: type[errors.HfHubHTTPError], status: int) -> Exception:
    # The hub's library has moved from one client to its successor; either one's response will do.
    response: Any = httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid"))
    return kind("no", response=response)


@pytest.mark.parametrize(
    "raised", [None, refused(errors.GatedRepoError, 403), refused(errors.HfHubHTTPError, 500)], ids=repr
)
def test_a_hub_that_answers_is_asked_once(
    raised: Exception | None, answering: Callable[[Exception | None], list[str]], tmp_path: Path
) -> None:
    names = answering(raised)
    assert [inputs.pretrained_arguments(name)["local_files_only"] for name in (str(tmp_path), "a/b", "a/b")] == [
        True,
        False,
        False,
    ]
    assert names == ["a/b"]


@pytest.mark.parametrize(
    ("kind", "revision", "message"),
    [
        (
            errors.RepositoryNotFoundError,
            None,
            "no folder 'a/b', and no model of this name on the Hugging Face Hub .*: no",
        ),
        (errors.RevisionNotFoundError, "v1", "no model of this name at 'v1' on the Hugging Face Hub"),
    ],
)
def test_what_a_hub_has_not_is_said(
    kind: type[errors.HfHubHTTPError],
    revision: str | None,
    message: str,
    answering: Callable[[Exception | None], list[str]],
) -> None:
    answering(refused(kind, 404))
    with pytest.raises(InputError, match=message):
        inputs.find_on_hub("a/b", revision)
    for name in ("./a", "a/b/c", "/a"):
        with pytest.raises(InputError, match=r"there is no folder .* on the Hugging Face Hub .*Repo id"):
            inputs.find_on_hub(name)


@pytest.mark.parametrize("raised", [httpx.ConnectError("no route"), errors.OfflineModeIsEnabled("off"), TimeoutError()])
def test_a_hub_that_cannot_be_reached_is_asked_once_and_the_cache_serves(
    raised: Exception, answering: Callable[[Exception | None], list[str]], tmp_path: Path
) -> None:
    names = answering(raised)
    with pytest.raises(
        InputError, match=r"no folder 'a/b', and .* cannot be reached .* nothing of this name was fetched"
    ):
        inputs.find_on_hub("a/b")
    (tmp_path / "models--a--b").mkdir()
    assert inputs.pretrained_arguments("a/b")["local_files_only"]
    assert names == ["a/b", "a/b"]
