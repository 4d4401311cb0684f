"""With tool calls too, our labels are those that others compute: `renderers`, which knows model families by heart, and
TRL and Axolotl from our exports. The chat templates are the families' own, as TRL ships them.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_cases import VENVS, installed, prepared, rehearsed, run_python, save_tiny_model
from tool_tokenizers import FAMILIES, tool_tokenizer

from refinesynth.chat import ToolMessage, render_tools, to_tool_messages
from refinesynth.export import Form, write_export
from refinesynth.train.data.record_forms import from_trajectory
from refinesynth.train.labelled_conversation import without_mistakes
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label, Rendered
from refinesynth.trajectory import Trajectory

# The families' chat templates are TRL's.
pytestmark = [pytest.mark.train, installed("trl", "verifiers", "tinker")]

OF_AXOLOTL = {"message_field_training": "training"}

Rows = list[dict[str, list[int]]]


class Place:
    """Trajectories, what we make of them, and what others make."""

    def __init__(self, folder: Path, family: str) -> None:
        self.folder = folder
        self.played: list[Trajectory] = list(rehearsed(4))
        self.tokenizer = tool_tokenizer(family, self.played)
        save_tiny_model(folder / "model", self.tokenizer)
        renderer = Renderer(self.tokenizer)
        self.ours: list[Rendered] = []
        for one in self.played:
            self.ours += renderer.render(from_trajectory(one, one.id, "tools"))

    def without_mistakes(self, form: Form) -> list[Rendered]:
        """What we make of them where mistakes are left out."""
        renderer, found = Renderer(self.tokenizer), [from_trajectory(one, one.id, form) for one in self.played]
        left = [without_mistakes(one) for one in found]
        return [rendered for one in left if one is not None for rendered in renderer.render(one)]

    def theirs(self, venv: str, job: str, data: Path, option: str) -> Rows:
        return prepared(self.folder, venv, job, data, option)

    def exported(self, name: str, form: Form = "tools") -> Path:
        data = self.folder / f"{name}.{form}.jsonl"
        write_export(self.played, data, name, form=form)
        return data

    def conversations(self) -> Path:
        """For `renderers`: messages to the last of the assistant, tools, and which messages are learned."""
        data = self.folder / "conversations.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for one in self.played:
                messages = to_tool_messages(one)
                last = max(at for at, message in enumerate(messages) if message.role == "assistant")
                record: dict[str, Any] = {
                    "messages": [message.openai(arguments="object") for message in messages[: last + 1]],
                    "tools": render_tools(one.script),
                    "mask": [any(map(_is_right, message.calls)) for message in messages[: last + 1]],
                }
                file.write(json.dumps(record) + "\n")
        return data


def _is_right(call: ToolMessage) -> bool:
    return call.label != "mistake"


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("qwen"), "qwen3")


def learned(ids: Sequence[int], labels: Sequence[int]) -> set[int]:
    assert all(label in (-100, token) for label, token in zip(labels, ids, strict=True))
    return {at for at, label in enumerate(labels) if label != -100}


def trained(one: Rendered) -> set[int]:
    return set(np.flatnonzero(one.labels == Label.TRAINED).tolist())


def starts(one: Rendered) -> set[int]:
    return {span.start for span in one.spans if one.labels[span.start] == Label.TRAINED}


def test_renderers_has_our_labels(place: Place, request: pytest.FixtureRequest) -> None:
    """But for what `renderers` knows otherwise: Qwen3's thinking models, whose last turn it writes with an empty block of
    thinking, where the template is that of those that do not think; and the line end after GLM's header, which GLM
    writes itself where its prompt ends before it, and the header that ends a conversation's last turn, which is not in
    the messages that `renderers` is given.
    """
    family = request.node.callspec.params["place"]
    found = place.theirs("verifiers", "renderers_job.py", place.conversations(), family)
    for ours, theirs in zip(place.ours, found, strict=True):
        until = ours.spans[-1].start if family == "qwen3" else ours.spans[-1].stop - 1
        ids, labels = theirs["input_ids"][:until], theirs["labels"][:until]
        here = {at for at in trained(ours) if at < until}
        assert ids == ours.input_ids[: len(ids)].tolist()
        differ = here ^ learned(ids, labels)
        if family == "qwen3":
            assert not differ
        else:
            assert differ == starts(ours)
            assert {place.tokenizer.decode(ids[at]) for at in differ} == {"\n"}


def test_trl_learns_each_turn_behind_its_prompt_and_the_line_end_after_it(qwen: Place) -> None:
    found = iter(qwen.theirs("trl", "trl_job.py", qwen.exported("trl-split"), "-"))
    for ours in qwen.ours:
        for span in ours.spans:
            if span.start not in starts(ours):
                continue
            theirs = next(found)
            ids = theirs["input_ids"]
            assert ids[: span.stop] == ours.input_ids[: span.stop].tolist()
            assert learned(ids, theirs["labels"]) == set(range(span.start, len(ids)))
            assert qwen.tokenizer.decode(ids[span.stop :]) == "\n"
    assert next(found, None) is None


def test_axolotl_has_our_labels(qwen: Place) -> None:
    found = qwen.theirs("trl", "axolotl_job.py", qwen.exported("axolotl"), json.dumps(OF_AXOLOTL))
    for ours, theirs in zip(qwen.ours, found, strict=True):
        assert theirs["input_ids"][: len(ours)] == ours.input_ids.tolist()
        assert learned(theirs["input_ids"], theirs["labels"]) == trained(ours)


_LABELS_OF_TINKER = """
rows = []
for datum in data:
    targets, weights = (datum.loss_fn_inputs[name].data for name in ("target_tokens", "weights"))
    labels = [target if weight else -100 for target, weight in zip(targets, weights)]
    rows.append({"input_ids": [datum.model_input.to_ints()[0], *targets], "labels": [-100, *labels]})
print(json.dumps(rows))
"""


def test_the_cookbook_of_tinker_has_our_labels_by_the_reader_that_we_show(qwen: Place) -> None:
    (script,) = re.findall(
        r"```python\n([^`]*tinker_cookbook[^`]*)```", (VENVS.parent / "docs" / "export.md").read_text("utf-8")
    )
    script = script.replace("Qwen/Qwen3-4B-Instruct-2507", str(qwen.folder / "model"))
    script = script.replace("tinker.jsonl", str(qwen.exported("tinker")))
    found: Rows = json.loads(run_python(qwen.folder, "tinker", "-c", script + _LABELS_OF_TINKER).splitlines()[-1])
    for ours, theirs in zip(qwen.ours, found, strict=True):
        assert theirs["input_ids"] == ours.input_ids[: len(theirs["input_ids"])].tolist()
        assert learned(theirs["input_ids"], theirs["labels"]) == trained(ours)


@pytest.mark.parametrize("form", ["react", "tools"])
def test_what_prime_rl_calls_has_our_labels_where_mistakes_are_left_out(qwen: Place, form: Form) -> None:
    """But for the last turn, which `renderers` writes for models that think, as above."""
    found = qwen.theirs("verifiers", "renderers_job.py", qwen.exported("prime-rl", form), "qwen3")
    for ours, theirs in zip(qwen.without_mistakes(form), found, strict=True):
        until = ours.spans[-1].start
        assert theirs["input_ids"][:until] == ours.input_ids[:until].tolist()
        assert learned(theirs["input_ids"][:until], theirs["labels"][:until]) == {
            at for at in trained(ours) if at < until
        }
