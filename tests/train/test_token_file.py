"""The file of token ids and labels holds what a training would see, and says what it leaves out."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.train import write_tokens
from refinesynth.train.labelled_conversation import LossOn
from refinesynth.train.prepare import prepare
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label

pytestmark = pytest.mark.process

TALKS = [tiny.talk(letters, id=f"t{k}") for k, letters in enumerate(("cmr", "mrcc", "c", "mm", "cmrcmrcmr"))]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.tokenizer("chatml").save_pretrained(str(folder))
    return folder


def rows(path: Path) -> list[dict[str, list[int]]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("loss_on", LossOn)
@pytest.mark.parametrize("most", [8192, 120])
def test_each_row_is_an_example_of_the_training(tmp_path: Path, model: Path, loss_on: LossOn, most: int) -> None:
    path = tmp_path / "tokens.jsonl"
    found = write_tokens(iter(TALKS), path, model=model, max_length=most, loss_on=loss_on)
    wanted = prepare(TALKS, Renderer(tiny.tokenizer("chatml"), loss_on=loss_on), most)
    assert [row["input_ids"] for row in rows(path)] == [one.input_ids.tolist() for one in wanted.store]
    for row, one in zip(rows(path), wanted.store, strict=True):
        trained = (one.labels == Label.TRAINED).tolist()
        assert [label != -100 for label in row["labels"]] == trained
        assert all(label in (-100, token) for label, token in zip(row["labels"], row["input_ids"], strict=True))
        assert row.keys() == {"input_ids", "labels"}
    assert found.counts == wanted.counts
    assert found.counts.longest == max(map(len, wanted.store))
    spans = [one.labels[span.start] == Label.TRAINED for one in wanted.store for span in one.spans]
    assert (found.counts.trained_turns, found.counts.other_turns) == (sum(spans), len(spans) - sum(spans))


def test_sources_may_have_weights_and_files_be_compressed(tmp_path: Path, model: Path) -> None:
    data = tmp_path / "chat.jsonl"
    said = [
        {"messages": [{"role": "user", "content": f"{k}?"}, {"role": "assistant", "content": "Yes."}]}
        for k in range(10)
    ]
    data.write_text("\n".join(json.dumps(each) for each in said))
    found = write_tokens([f"{data}:0.5", (TALKS, 2)], tmp_path / "t.jsonl.gz", model=model)
    assert found.counts.conversations == 15
    assert len(gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()).splitlines()) == found.counts.records == 13


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "tokens.jsonl"

    def broken() -> Any:
        yield from TALKS
        raise InputError("line 7 is none")

    for data, problem in ((broken(), "line 7"), ([tiny.talk("mm")], "none of 1 conversations has a turn to train on")):
        with pytest.raises(InputError, match=problem):
            write_tokens(data, path, model=model)
        assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_tokens(TALKS, path, model=model)
    assert path.read_text() == "mine"
    assert write_tokens(TALKS, path, model=model, overwrite=True).counts.records == 4


def test_what_is_asked_wrongly_is_refused(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    with pytest.raises(InputError, match="'scratch' is made when it is trained"):
        write_tokens(TALKS, path, model="scratch")
    with pytest.raises(ConfigurationError, match="did you mean max_length"):
        write_tokens(TALKS, path, model=model, max_lenght=4)
    with pytest.raises(InputError, match=r"no file or folder 'nowhere\.jsonl'"):
        write_tokens("nowhere.jsonl", path, model=model)
    assert not path.exists()
