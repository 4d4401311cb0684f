"""The prompt of a local model in text has the tokens of training, the first one too."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tiny
from tokenizers.processors import TemplateProcessing

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from refinesynth.evaluate.inspect_models import open_model

pytestmark = pytest.mark.train


@pytest.mark.parametrize(("family", "adds"), [("llama3", True), ("llama3", False), ("chatml", False)])
def test_special_tokens_are_written_once(
    family: str, adds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer: Any = deepcopy(tiny.tokenizer(family))
    if adds:
        # As Llama's own: it puts a token before every text.
        first = tokenizer.bos_token
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, tokenizer.convert_tokens_to_ids(first))]
        )
    tokenizer.save_pretrained(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    given: dict[str, Any] = {}

    def opened(name: str, **arguments: Any) -> str:
        given.update(arguments)
        return name

    monkeypatch.setattr("refinesynth.evaluate.inspect_models.get_model", opened)
    open_model(str(tmp_path), temperature=0.0, settings={})
    # Absent where it changes nothing, so evaluations that were begun before go on.
    assert ("tokenizer_call_args" in given) == adds
    chat = [{"role": "user", "content": "You are in a kitchen."}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, **given.get("tokenizer_call_args", {})).input_ids
    trained = tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert ids == trained
