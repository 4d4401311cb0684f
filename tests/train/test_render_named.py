"""Chat templates by name."""

from pathlib import Path
from typing import Any

import pytest
import tiny

from refinesynth.errors import InputError
from refinesynth.train.render import Renderer
from refinesynth.train.render.template import REACT_TEMPLATE, TemplateError, read_template


def base(family: str) -> Any:
    """A tokenizer with the tokens of a family and no template, as base models have them."""
    made = tiny.tokenizer(family)
    made.chat_template = None
    return made


@pytest.mark.parametrize(("name", "family"), [("llama-3", "llama3"), ("chatml", "chatml")])
@pytest.mark.parametrize("system", [None, "You play."])
def test_a_base_model_is_rendered_as_its_tuned_sibling(name: str, family: str, system: str | None) -> None:
    talk = tiny.talk("cmrc", system=system)
    tokenizer = base(family)
    (found,) = Renderer(tokenizer, template=read_template(name)).render(talk)
    (wanted,) = Renderer(tiny.tokenizer(family, markers=True)).render(talk)
    assert found.input_ids.tolist() == wanted.input_ids.tolist()
    assert found.labels.tolist() == wanted.labels.tolist()
    ask = [{"role": "user", "content": " Go on. "}]
    written = [
        each.apply_chat_template(ask, tokenize=False, add_generation_prompt=True)
        for each in (tokenizer, tiny.tokenizer(family))
    ]
    assert written[0] == written[1]


def test_every_trained_turn_of_llama_3_ends_in_its_own_token() -> None:
    tokenizer = base("llama3")
    tokenizer.eos_token = "<|end_of_text|>"
    (found,) = Renderer(tokenizer, template=read_template("llama-3")).render(tiny.talk("cmr"))
    ends = [int(found.input_ids[span.stop - 1]) for span in found.spans]
    assert set(ends) == {tokenizer.convert_tokens_to_ids("<|eot_id|>")}
    assert found.input_ids.tolist().count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize(("name", "family"), [("llama-3", "chatml"), ("llama-3", "mistral"), ("chatml", "llama3")])
def test_a_template_for_another_family_is_refused(name: str, family: str) -> None:
    with pytest.raises(TemplateError, match="no end-of-turn token"):
        Renderer(tiny.tokenizer(family), template=read_template(name)).render(tiny.talk("c"))


def test_a_template_is_a_name_or_a_file(tmp_path: Path) -> None:
    assert read_template(None) is None
    assert read_template("react") == REACT_TEMPLATE
    (tmp_path / "mine.jinja").write_text("{{ messages }}")
    assert read_template(str(tmp_path / "mine.jinja")) == "{{ messages }}"
    (tmp_path / "bytes.jinja").write_bytes(b"\xff")
    for wrong in ("bytes.jinja", "none.jinja"):
        with pytest.raises(InputError, match="chat template"):
            read_template(str(tmp_path / wrong))
