"""GGUF files as models: unpacked once to an ordinary folder that has the file's weights, or refused in words."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engine_toys as toys
import pytest
import tiny
import torch
from filelock import FileLock
from peft import AutoPeftModelForCausalLM
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from refinesynth.errors import ConfigurationError, InputError, StorageError
from refinesynth.files import gguf as gguf_module
from refinesynth.files.gguf import unpack_gguf
from refinesynth.train import Trainer, write_tokens
from refinesynth.train.engine.loading import describe_model, load_model, load_tokenizer

pytest.importorskip("gguf", reason="needs the extra gguf")

from gguf import GGMLQuantizationType as Kind
from gguf_files import write_gguf

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")]

SIZES: dict[str, Any] = {"vocab_size": 403, "hidden_size": 64, "intermediate_size": 64, "eos_token_id": 402}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
IDS = torch.arange(24)[None] * 7


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFINESYNTH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "gguf"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def opened(name: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(unpack_gguf(name), dtype="auto", local_files_only=True)


def factors(model: Any, plain: Any) -> list[float]:
    """Tensor of scaled rotary frequencies, as llama.cpp's converter writes it."""
    return (plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq).tolist()


@pytest.mark.representative
@pytest.mark.parametrize("tied", [True, False])
def test_the_unpacked_model_has_the_weights_logits_and_tokens_of_the_file(tied: bool):
    toy = toys.model(**SIZES, tie_word_embeddings=tied)
    held = write_gguf(Path("toy.gguf"), toy)
    toy.load_state_dict(held, strict=False)
    toy.tie_weights()
    found = opened("toy.gguf")
    assert torch.equal(logits(found), logits(toy))
    assert found.config.tie_word_embeddings is tied
    assert (found.lm_head.weight is found.model.embed_tokens.weight) is tied
    assert found.dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(unpack_gguf("toy.gguf"))
    ours = tiny.tokenizer(vocabulary=400)
    asked = [{"role": "user", "content": "Thought: café  12\n\nAction: open <drawer> 3"}]
    prompts = [one.apply_chat_template(asked, add_generation_prompt=True)["input_ids"] for one in (tokenizer, ours)]
    assert prompts[0] == prompts[1]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.F16])
def test_a_head_that_was_tied_is_tied_again_with_the_more_exact_weights(kind: Kind):
    toy = toys.model(**SIZES, tie_word_embeddings=True)
    held = write_gguf(Path("toy.gguf"), toy, head=kind)
    toy.load_state_dict(held | {"model.embed_tokens.weight": held["lm_head.weight"]})
    found = opened("toy.gguf")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert torch.equal(logits(found), logits(toy))


def test_the_scaled_rotary_embedding_of_llama_3_is_restored():
    toy, plain = toys.model(**SIZES, rope_parameters=LLAMA_3), toys.model(**SIZES)
    held = write_gguf(Path("toy.gguf"), toy, extra={"rope_freqs.weight": factors(toy, plain)})
    toy.load_state_dict(held, strict=False)
    found = opened("toy.gguf")
    assert found.config.rope_parameters == LLAMA_3
    assert torch.allclose(logits(found), logits(toy), atol=1e-5)
    assert not torch.allclose(logits(plain), logits(toy), atol=1e-2)


def test_settings_that_transformers_does_not_take_from_the_file_are_restored():
    for architecture, rotation in (
        ("starcoder2", {"rope_theta": 999_999.4375}),
        ("phi3", {"rope_theta": 10_000.0, "partial_rotary_factor": 0.75}),
        ("phi3", {"rope_theta": 10_000.0}),
    ):
        config = AutoConfig.for_model(
            architecture,
            **toys.SIZES | SIZES,
            rope_parameters={"rope_type": "default"} | rotation,
            tie_word_embeddings=True,
            bos_token_id=None,
            pad_token_id=None,
        )
        model = AutoModelForCausalLM.from_config(config)
        path = Path(f"{architecture}.gguf")
        write_gguf(path, model, architecture=architecture)
        found = opened(str(path))
        assert torch.allclose(found.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)


@pytest.mark.parametrize(
    ("kind", "blocks", "scale"), [("gemma2", 46, 16), ("gemma3_text", 62, 16), ("gemma2", 42, 256)]
)
def test_the_large_gemmas_scale_attention_by_their_width(kind: str, blocks: int, scale: int):
    config = AutoConfig.for_model(kind, hidden_size=64, num_attention_heads=4, num_hidden_layers=blocks)
    config.rope_parameters = None
    vars(gguf_module)["_restore_settings"](None, config)
    assert config.query_pre_attn_scalar == scale


def test_a_file_is_unpacked_once_and_again_when_it_has_changed(cache: Path):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    first = unpack_gguf("toy.gguf")
    shutil.copy("toy.gguf", "copy.gguf")
    assert unpack_gguf("toy.gguf") == first
    assert unpack_gguf(str(Path("toy.gguf").resolve())) == first
    assert unpack_gguf(first) == first
    write_gguf(Path("toy.gguf"), toys.model(**SIZES, seed=1))
    second = unpack_gguf("toy.gguf")
    assert second != first
    assert not torch.equal(logits(opened(first)), logits(opened(second)))
    assert {one.name for one in cache.iterdir() if one.is_dir()} == {Path(first).name, Path(second).name}


@pytest.mark.parametrize("lost", ["model.safetensors", "config.json", "tokenizer.json", "unpacked.json", "cut"])
def test_a_damaged_folder_is_unpacked_again_and_unfinished_ones_are_removed(lost: str, cache: Path):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    folder = Path(unpack_gguf("toy.gguf"))
    if lost == "cut":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        (folder / lost).unlink()
    own, other, busy = [cache / f"unfinished-{name}" for name in (folder.name, "other", "busy")]
    for one in (own, other, busy):
        one.mkdir()
    with FileLock(cache / "busy.lock"):
        assert logits(opened("toy.gguf")).shape[-1] == SIZES["vocab_size"]
    assert {one for one in cache.iterdir() if one.is_dir()} == {folder, busy}


def test_a_failure_of_safetensors_to_write_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("I/O error: No space left on device")

    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(StorageError, match=r"'toy\.gguf' cannot be unpacked to .*No space left on device; make room"):
        unpack_gguf("toy.gguf")
    assert [one for one in cache.iterdir() if one.is_dir()] == []


def damaged(start: bytes, length: int | None = None) -> Callable[[], object]:
    """A file that begins so, or a whole one of which only the first bytes are left."""

    def write() -> None:
        if start:
            Path("toy.gguf").write_bytes(start)
            return
        write_gguf(Path("toy.gguf"), toys.model(**SIZES))
        Path("toy.gguf").write_bytes(Path("toy.gguf").read_bytes()[:length])

    return write


def written(**how: Any) -> Callable[[], object]:
    return lambda: write_gguf(Path("toy.gguf"), toys.model(**SIZES), **how)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "not there": (lambda: None, "cannot be read: No such file or directory; expected a GGUF file"),
    "a zip": (damaged(b"PK\x03\x04and more"), r"is no GGUF file: it begins with b'PK\\x03\\x04' instead of b'GGUF'"),
    "an empty file": (lambda: Path("toy.gguf").touch(), "is no GGUF file: it begins with b''"),
    "no metadata": (damaged(b"GGUF\x03\x00"), "the GGUF file 'toy.gguf' cannot be read"),
    "truncated metadata": (damaged(b"", 3_000), "cannot be read: .*Expected a whole file"),
    "truncated weights": (damaged(b"", -2_000), "cannot be read: .*Fetch the file again"),
    "architecture": (written(architecture="rwkv7"), "architecture rwkv7 is not supported yet"),
    "one of many": (written(fields={"split.count": 3}), "one of 3 parts; join them with llama-gguf-split --merge"),
    "lost biases": (
        written(extra={"blk.0.attn_q.bias": [0.5] * 64}),
        "numbers, and transformers' LlamaForCausalLM takes",
    ),
    "missing weights": (written(without="1.mlp.up_proj.weight"), "numbers, and transformers' LlamaForCausalLM takes"),
    "another scaling": (written(fields={"llama.rope.scaling.type": "yarn"}), "rotary embedding is scaled in a way"),
    "other factors": (written(extra={"rope_freqs.weight": [1.0, 3.0, 1, 9, 1, 1, 1, 1]}), "rotary embedding is scaled"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_model_here_is_refused_in_words(case: str, cache: Path):
    write, message = REFUSED[case]
    write()
    with pytest.raises(InputError, match=message):
        unpack_gguf("toy.gguf")
    assert not cache.is_dir() or [one for one in cache.iterdir() if one.is_dir()] == []


def test_a_missing_package_and_a_cache_that_cannot_be_written_are_said(cache: Path, monkeypatch: pytest.MonkeyPatch):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    with monkeypatch.context() as full:
        full.setattr("refinesynth.files.gguf.disk_usage", lambda _: SimpleNamespace(free=1_000))
        with pytest.raises(StorageError, match=r"'toy\.gguf' cannot be unpacked to .*No space left"):
            unpack_gguf("toy.gguf")
    shutil.rmtree(cache.parent)
    cache.parent.write_text("a file")
    with pytest.raises(StorageError, match=r"make room .*, or set REFINESYNTH_CACHE to another folder"):
        unpack_gguf("toy.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigurationError, match=r"package 'gguf', .*pip install 'refinesynth\[gguf\]'"):
        unpack_gguf("toy.gguf")


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    path = tmp_path / "talks.jsonl"
    one = '{"messages": [{"role": "user", "content": "Open it, %d."}, {"role": "assistant", "content": "Action: open 3"}]}'
    path.write_text("\n".join(one % at for at in range(6)))
    return path


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["all weights", "lora"])
def test_a_gguf_file_is_trained_and_what_was_saved_is_an_ordinary_model(talks: Path, lora: Any, tmp_path: Path):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES, tie_word_embeddings=True))
    fields: dict[str, Any] = {"lora": lora, "batch_size": 3, "max_steps": 2, "learning_rate": 1e-2, "precision": "fp32"}
    trainer = Trainer(model="toy.gguf", data=talks, output=tmp_path / "out", device="cpu", held_out=0, **fields)
    assert trainer.plan().model.name == "toy.gguf"
    assert trainer.preview()
    trainer.train()
    kind: Any = AutoModelForCausalLM if lora is None else AutoPeftModelForCausalLM
    found = kind.from_pretrained(str(tmp_path / "out"), local_files_only=True)
    if lora is None:
        assert found.lm_head.weight is found.model.embed_tokens.weight
    assert not torch.equal(logits(found), logits(opened("toy.gguf")))
    settings = (tmp_path / "out" / "train.yaml").read_text()
    assert "model: toy.gguf" in settings
    assert "toy.gguf" in (tmp_path / "out" / "README.md").read_text()


def test_tokens_are_those_of_the_file_and_no_weights_are_unpacked(talks: Path, tmp_path: Path, cache: Path):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    write_tokens(talks, tmp_path / "tokens.jsonl", model="toy.gguf")
    assert not cache.exists()
    write_tokens(talks, tmp_path / "again.jsonl", model=unpack_gguf("toy.gguf"))
    assert (tmp_path / "tokens.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()


def test_a_file_has_no_revision_and_is_asked_of_no_hub(talks: Path):
    write_gguf(Path("toy.gguf"), toys.model(**SIZES))
    config = toys.config(Path("out"), model="toy.gguf", tokenizer="toy.gguf", lora={"rank": 2})
    assert describe_model(config).name == "toy.gguf"
    assert len(load_tokenizer(config)) == SIZES["vocab_size"]
    assert load_model(config, "bf16", gradient_checkpointing=False)
    with pytest.raises(InputError, match=r"'toy\.gguf' is on this machine and has no revision 'v1'"):
        Trainer(model="toy.gguf", data=talks, output="out", revision="v1").plan()
