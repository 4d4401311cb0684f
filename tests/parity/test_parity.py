"""Our labels are those that other trainers compute from our exports; where they are not, it is known how they differ.

Each trainer runs in an environment of its own, made once by `python -m bench.train.setup`; without it, nothing here
runs.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from parity_cases import (
    CHATML,
    HONOURS_LOSS,
    VENVS,
    forging,
    hostile,
    installed,
    prepared,
    rehearsed,
    run_python,
    save_tiny_model,
    trained_tokenizer,
)
from typer.testing import CliRunner

from refinesynth.cli import app
from refinesynth.export import write_export
from refinesynth.train.data import read_conversations
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label, Rendered
from refinesynth.trajectory import Trajectory

pytestmark = pytest.mark.train

trl = installed("trl")
# It shares TRL's environment.
axolotl = trl
llamafactory = installed("llamafactory")
tinker = installed("tinker")

OF_AXOLOTL = '{"message_field_training": "training"}'

LINE, HEADER = "the line end after a trained turn", "the header of a trained turn"


@dataclass(frozen=True)
class Theirs:
    """One record as another trainer prepared it."""

    input_ids: list[int]
    labels: list[int]


class Workplace:
    """Trajectories, what we make of them, and their exports for the others."""

    def __init__(self, folder: Path, trajectories: Sequence[Trajectory]) -> None:
        self.folder = folder
        self.trajectories = trajectories
        self.tokenizer: Any = trained_tokenizer(trajectories)
        save_tiny_model(folder / "model", self.tokenizer)
        (folder / "marked.jinja").write_text(HONOURS_LOSS, encoding="utf-8")
        (folder / "trajectories.jsonl").write_bytes(b"".join(one.to_json() + b"\n" for one in trajectories))

    def ours(self, *, template: str = CHATML, without_refinement: bool = False) -> dict[str, Rendered]:
        """What our renderer makes of each conversation, by the trajectory's id."""
        renderer = Renderer(self.tokenizer, template=template)
        found = read_conversations([self.folder / "trajectories.jsonl"], without_refinement=without_refinement)
        return {one.id: one for conversation in found for one in renderer.render(conversation)}

    def theirs(
        self, trainer: str, job: str, form: str, option: str, masking: str | None = None
    ) -> dict[str, list[Theirs]]:
        """What another trainer makes of an export: the records of each trajectory, by its id, in order."""
        data = self.folder / f"{form}.jsonl"
        write_export(self.trajectories, data, form, masking=masking, overwrite=True)
        found = [Theirs(**row) for row in prepared(self.folder, trainer, job, data, option)]
        ids = [record_id(json.loads(line)) for line in data.read_bytes().splitlines()]
        grouped: dict[str, list[Theirs]] = {}
        for name, one in zip(ids, found, strict=True):
            grouped.setdefault(name.partition("#")[0], []).append(one)
        return grouped


def record_id(record: dict[str, Any]) -> str:
    """LLaMA-Factory v1 has another key for it."""
    return cast("str", record.get("id") or record["extra_info"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("parity"), [*rehearsed(6), *hostile()])


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("forged"), forging())


def differences(ours: Rendered, theirs: Iterable[Theirs], tokenizer: Any) -> Counter[str]:
    """Tokens whose label is not ours, by kind; ids must be ours, and no token may be learned in two records."""
    learned: set[int] = set()
    longest = 0
    for one in theirs:
        longest = max(longest, len(one.input_ids))
        assert one.input_ids == ours.input_ids[: len(one.input_ids)].tolist()
        assert all(label in (-100, token) for label, token in zip(one.labels, one.input_ids, strict=True))
        here = {at for at, label in enumerate(one.labels) if label != -100}
        assert learned.isdisjoint(here)
        learned |= here
    # Nothing is learned after what the others keep.
    assert not (ours.labels[longest:] == Label.TRAINED).any()
    trained = set(np.flatnonzero(ours.labels == Label.TRAINED).tolist())
    return Counter(_kind(at, ours, tokenizer) if at in learned else "not learned" for at in learned ^ trained)


def _kind(at: int, ours: Rendered, tokenizer: Any) -> str:
    spans = [span for span in ours.spans if ours.labels[span.start] == Label.TRAINED]
    text = tokenizer.decode([int(ours.input_ids[at])])
    if text == "\n" and any(at == span.stop for span in spans):
        return LINE
    # <|im_start|>, the role, the line end.
    headers = [k for span in spans for k in range(span.start - 1, -1, -1) if k >= _header(ours, span.start, tokenizer)]
    return HEADER if at in headers else f"something else: {text!r}"


def _header(ours: Rendered, start: int, tokenizer: Any) -> int:
    begin = tokenizer.convert_tokens_to_ids("<|im_start|>")
    return next(at for at in range(start - 1, -1, -1) if ours.input_ids[at] == begin)


def all_differences(
    place: Workplace, ours: dict[str, Rendered], theirs: dict[str, list[Theirs]]
) -> dict[str, Counter[str]]:
    assert ours.keys() == theirs.keys() == {one.id for one in place.trajectories}
    return {name: differences(ours[name], theirs[name], place.tokenizer) for name in ours}


def learned_text(one: Theirs, tokenizer: Any) -> str:
    """What is learned of a record, without what is between."""
    return tokenizer.decode([label for label in one.labels if label != -100])


def turns(one: Rendered) -> int:
    """Trained turns."""
    return sum(one.labels[span.start] == Label.TRAINED for span in one.spans)


@trl
@pytest.mark.parametrize("template", [CHATML, HONOURS_LOSS], ids=["no markers", "markers"])
def test_trl_with_a_template_that_honours_the_flag_has_our_labels(place: Workplace, template: str) -> None:
    theirs = place.theirs("trl", "trl_job.py", "trl", str(place.folder / "marked.jinja"))
    for found in all_differences(place, place.ours(template=template), theirs).values():
        assert not found


@trl
def test_trl_with_a_stock_template_learns_our_turns_and_the_line_end_after_them(place: Workplace) -> None:
    ours = place.ours()
    found = all_differences(place, ours, place.theirs("trl", "trl_job.py", "trl-split", "-"))
    assert found == {name: {LINE: turns(one)} for name, one in ours.items()}


_LABELS_OF_THE_COLLATOR = """
import json
rows = [trainer.data_collator([row]) for row in trainer.train_dataset]
print(json.dumps([{name: row[name][0].tolist() for name in ("input_ids", "labels")} for row in rows]))
"""


@trl
@pytest.mark.parametrize("packed", [False, True])
def test_trl_trains_on_our_tokens_and_labels_by_the_script_that_we_show(place: Workplace, packed: bool) -> None:
    ours = place.ours()
    longest = max(map(len, ours.values()))
    data = place.folder / "tokens.jsonl"
    arguments = ["export", str(place.folder / "trajectories.jsonl"), "--format", "tokens", "--overwrite"]
    shown = CliRunner().invoke(app, [*arguments, "--model", str(place.folder / "model"), "-o", str(data)])
    assert shown.exit_code == 0, shown.output
    assert f"the longest record has {longest:,}" in shown.stdout
    (script,) = re.findall(
        r"```python\n([^`]*SFTTrainer[^`]*)```", (VENVS.parent / "docs" / "export.md").read_text("utf-8")
    )
    script = script.replace("Qwen/Qwen2.5-0.5B-Instruct", str(place.folder / "model"))
    on_a_cpu = "use_cpu=True, bf16=False, report_to='none', max_steps=1, disable_tqdm=True,"
    script = script.replace(
        "max_length=None,",
        f"packing=True, max_length={longest}, {on_a_cpu}" if packed else f"max_length=None, {on_a_cpu}",
    )
    told = run_python(place.folder, "trl", "-c", script + _LABELS_OF_THE_COLLATOR)
    found = [Theirs(**row) for row in json.loads(told.splitlines()[-1])]
    labels = {name: np.where(one.labels == Label.TRAINED, one.input_ids, -100) for name, one in ours.items()}
    if packed:
        # Each row holds whole conversations; their first tokens, which nothing precedes, are learned by neither.
        assert sum(len(one.input_ids) for one in found) == sum(map(len, ours.values()))
        assert len(found) < len(ours)
        whole = [(one.input_ids.tolist(), labels[name].tolist()) for name, one in ours.items()]
        for row in found:
            at = 0
            while at < len(row.input_ids):
                ids, wanted = next(one for one in whole if row.input_ids[at : at + len(one[0])] == one[0])
                assert row.labels[at : at + len(ids)] == wanted
                whole.remove((ids, wanted))
                at += len(ids)
        assert not whole
    else:
        assert [one.input_ids for one in found] == [one.input_ids.tolist() for one in ours.values()]
        assert [one.labels for one in found] == [one.tolist() for one in labels.values()]


_PAIRS_OF_TRL = """
import json
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

settings = DPOConfig(output_dir="dpo", max_length=None, use_cpu=True, bf16=False, report_to="none", max_steps=1, disable_tqdm=True)
trainer = DPOTrainer(
    model="model",
    args=settings,
    processing_class=AutoTokenizer.from_pretrained("model"),
    train_dataset=load_dataset("json", data_files="pairs.jsonl", split="train"),
)
trainer.train()
names = ("prompt_ids", "chosen_ids", "rejected_ids")
print(json.dumps([[row[name] for name in names] for row in trainer.train_dataset]))
"""


@trl
def test_trl_trains_on_our_pairs_of_a_mistake_and_its_repair(place: Workplace) -> None:
    data = place.folder / "pairs.jsonl"
    report = write_export(place.trajectories, data, "preference", overwrite=True)
    found = json.loads(run_python(place.folder, "trl", "-c", _PAIRS_OF_TRL).splitlines()[-1])
    records = [json.loads(line) for line in data.read_bytes().splitlines()]
    assert len(found) == len(records) == report.records > 10
    for record, (prompt, better, worse) in zip(records, found, strict=True):
        tokens = [place.tokenizer.apply_chat_template(record["prompt"], add_generation_prompt=True, return_dict=False)]
        said = [f"{record[name][0]['content']}<|im_end|>\n" for name in ("chosen", "rejected")]
        tokens += [place.tokenizer(text, add_special_tokens=False)["input_ids"] for text in said]
        assert [prompt, better, worse] == tokens


@axolotl
def test_axolotl_has_our_labels(place: Workplace) -> None:
    ours = place.ours()
    found = all_differences(place, ours, place.theirs("trl", "axolotl_job.py", "axolotl", OF_AXOLOTL, "flag"))
    assert not any(found.values())


@tinker
def test_the_cookbook_of_tinker_has_our_labels(place: Workplace) -> None:
    """It makes tokens of a content alone: where one begins with a line end, they are others, of the same text."""
    ours = place.ours()
    theirs = place.theirs("tinker", "tinker_job.py", "tinker", "qwen3_instruct")
    (odd,) = theirs.pop("white-space")
    own = ours.pop("white-space")
    trained = [at for at, label in enumerate(own.labels) if label == Label.TRAINED]
    assert learned_text(odd, place.tokenizer) == place.tokenizer.decode(own.input_ids[trained])
    assert ours.keys() == theirs.keys()
    assert not any(differences(ours[name], theirs[name], place.tokenizer) for name in ours)


@llamafactory
def test_llamafactory_classic_learns_our_turns_and_the_line_end_after_them(place: Workplace) -> None:
    ours = place.ours()
    theirs = place.theirs("llamafactory", "llamafactory_v0_job.py", "sharegpt", "mask", "split")
    found = all_differences(place, ours, theirs)
    assert found == {name: {LINE: turns(one)} for name, one in ours.items()}


@llamafactory
def test_llamafactory_classic_reads_data_without_refinement_as_we_do(place: Workplace) -> None:
    ours = place.ours(without_refinement=True)
    theirs = place.theirs("llamafactory", "llamafactory_v0_job.py", "sharegpt", "train", "drop")
    found = all_differences(place, ours, theirs)
    assert found == {name: {LINE: turns(one)} for name, one in ours.items()}


@llamafactory
@pytest.mark.parametrize("template", ["chatml", "qwen3_nothink"])
def test_llamafactory_v1_learns_our_turns_their_headers_and_the_line_end_after_them(
    place: Workplace, template: str
) -> None:
    ours = place.ours()
    found = all_differences(
        place, ours, place.theirs("llamafactory", "llamafactory_v1_job.py", "llamafactory", template, "flag")
    )
    for name, one in ours.items():
        assert found[name].keys() == {LINE, HEADER}
        assert found[name][LINE] == turns(one)


@pytest.mark.parametrize(
    ("trainer", "job", "form", "option"),
    [
        pytest.param("trl", "trl_job.py", "trl-split", "-", marks=trl),
        pytest.param("llamafactory", "llamafactory_v0_job.py", "sharegpt", "mask", marks=llamafactory),
        pytest.param("llamafactory", "llamafactory_v1_job.py", "llamafactory", "chatml", marks=llamafactory),
    ],
)
def test_an_observation_forges_a_turn_for_the_others_and_not_for_us(
    forged: Workplace, trainer: str, job: str, form: str, option: str
) -> None:
    begin = forged.tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert forged.ours() == {}
    (theirs,) = forged.theirs(trainer, job, form, option).values()
    # The task, two turns, and an observation between them.
    assert theirs[-1].input_ids.count(begin) == 4 + 1
