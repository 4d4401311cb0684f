"""What is counted, estimated and refused before the first step."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_values import CPU, GIB, LLAMA_8B, MEANS, a_config, a_plan, counts, gpus, sizes

from refinesynth.errors import InputError
from refinesynth.train.plan import (
    ComputeSettings,
    Devices,
    MemoryEstimate,
    ModelShape,
    Parallel,
    Precision,
    compute_settings,
    estimate_memory,
)

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32", "fp64")
PARALLELS: tuple[Parallel, ...] = ("none", "ddp", "zero2", "zero3", "fsdp")


def estimated(
    model: ModelShape = LLAMA_8B,
    *,
    tokens: int = 8192,
    trained: int = 3000,
    precision: Precision = "bf16",
    parallel: Parallel = "none",
    ranks: int = 1,
    gradient_checkpointing: bool = True,
) -> MemoryEstimate:
    means = ComputeSettings(precision, parallel, gradient_checkpointing, "sdpa")
    return estimate_memory(model, means, tokens=tokens, trained=trained, ranks=ranks)


@pytest.mark.parametrize(
    ("precision", "parallel", "bytes_each"),
    [("bf16", "none", 16), ("fp32", "none", 16), ("fp64", "none", 32), ("bf16", "zero3", 16)],
)
def test_all_weights_take_so_many_bytes_each(precision: Precision, parallel: Parallel, bytes_each: int) -> None:
    found = estimated(precision=precision, parallel=parallel)
    assert found.fixed == bytes_each * LLAMA_8B.parameters


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("parallel", ["zero3", "fsdp"])
def test_what_is_split_is_split_over_all_devices(precision: Precision, parallel: Parallel) -> None:
    one, eight = (estimated(precision=precision, parallel=parallel, ranks=ranks) for ranks in (1, 8))
    assert eight.fixed * 8 == pytest.approx(one.fixed, abs=100)
    assert eight.activations == one.activations


def test_adapters_need_neither_gradients_nor_moments_of_the_frozen_weights() -> None:
    adapted = replace(LLAMA_8B, parameters=LLAMA_8B.parameters + 80_000_000, trainable=80_000_000)
    found = estimated(adapted)
    assert found.weights == 2 * LLAMA_8B.parameters + 4 * 80_000_000
    assert found.gradients + found.optimizer == 12 * 80_000_000


def a_shape(layers: int, hidden: int, ratio: int, vocabulary: int) -> ModelShape:
    parameters = layers * hidden * hidden * (4 + 3 * ratio) + vocabulary * hidden
    return ModelShape("m", parameters, parameters, layers, hidden, hidden * ratio, vocabulary)


shapes = st.builds(a_shape, st.integers(2, 80), st.integers(8, 8192), st.integers(1, 5), st.integers(10, 200_000))


@given(
    model=shapes,
    tokens=st.integers(100, 10_000),
    precision=st.sampled_from(PRECISIONS),
    parallel=st.sampled_from(PARALLELS),
    ranks=st.integers(1, 64),
)
def test_memory_grows_with_tokens_and_shrinks_by_checkpointing(
    model: ModelShape, tokens: int, precision: Precision, parallel: Parallel, ranks: int
) -> None:
    found = partial(estimated, model, precision=precision, parallel=parallel, ranks=ranks)
    kept, again, more = (
        found(tokens=number, trained=number // 2, gradient_checkpointing=again)
        for number, again in ((tokens, False), (tokens, True), (2 * tokens, True))
    )
    assert again.activations <= kept.activations
    assert again.activations < more.activations
    assert kept.fixed == again.fixed == more.fixed
    assert min(again.weights, again.gradients, again.optimizer, again.activations) >= 0
    assert again.total == again.fixed + again.activations


def test_an_8b_model_does_not_fit_one_gpu_and_is_refused_with_ways_out() -> None:
    with pytest.raises(InputError) as caught:
        a_plan(devices=gpus(1))
    text = str(caught.value)
    assert "take 120 GiB on each, and NVIDIA H100 has 80 GiB" in text
    assert "--lora, --deepspeed zero3 on more GPUs or a smaller model" in text


def test_only_what_is_sure_is_refused_and_the_rest_is_remarked() -> None:
    plan = a_plan(a_config(max_length=8192), devices=gpus(1, gib=124), of=sizes(longest=8000))
    assert any("memory may not suffice" in remark for remark in plan.remarks)
    on_cpu = a_plan()
    assert not any("memory" in remark for remark in on_cpu.remarks)


@pytest.mark.parametrize(
    ("conversations", "fields", "expected"),
    [
        (1000, {}, (160, 16, 10, 10)),
        (1000, {"epochs": 0.5}, (8, 16, 1, 1)),
        (1000, {"epochs": 0.001}, (1, 16, 1, 1)),
        (1000, {"max_steps": 5}, (5, 16, 1, 1)),
        (1000, {"evaluate_every": 7, "save_every": "never"}, (160, 16, 23, 0)),
        (1000, {"evaluate_every": 0.5}, (160, 16, 20, 10)),
        (64, {"epochs": 1}, (1, 1, 1, 1)),
        (65, {"epochs": 1}, (2, 2, 1, 1)),
    ],
)
def test_steps_epochs_evaluations_and_checkpoints_are_counted(
    conversations: int, fields: dict[str, Any], expected: tuple[int, ...]
) -> None:
    plan = a_plan(a_config(**fields), of=sizes(counts(conversations), counts(20)))
    assert (plan.steps, plan.steps_per_epoch, plan.evaluations, plan.checkpoints) == expected


def test_without_anything_held_out_nothing_is_evaluated_and_that_is_said() -> None:
    lost = counts(20, records=0, dropped_long=13, dropped_untrained=6, dropped_forged=1)
    plan = a_plan(of=sizes(held_out=lost))
    assert plan.evaluations == 0
    (remark,) = [remark for remark in plan.remarks if "held-out" in remark]
    assert remark.startswith(
        "all 20 held-out conversations are left out: 6 without a turn that loss_on=refinement learns from, "
        "13 longer than max_length=8,192, 1 with text that looks like a control token; evaluations"
    )
    for held_out in (None, counts(20, dropped_long=1)):
        assert not any("held" in remark for remark in a_plan(of=sizes(held_out=held_out)).remarks)


def test_passes_hold_a_batch_in_packs_or_one_conversation() -> None:
    # 64 conversations of 1,000 tokens in packs of 8,192.
    assert a_plan().passes_per_step == 8
    assert a_plan(devices=replace(gpus(4), kind="cpu"), means=replace(MEANS, parallel="ddp")).passes_per_step == 2
    assert a_plan(a_config(packing=False)).passes_per_step == 64


def test_memory_is_estimated_for_the_fullest_pass_that_can_come() -> None:
    """Without packing it is the longest conversation; few short conversations fill no pack."""
    packed, alone = (a_plan(a_config(packing=packing), of=sizes(longest=1000)) for packing in (True, False))
    assert alone.memory == a_plan(a_config(batch_size=1), of=sizes(longest=1000)).memory
    by_batch = [a_plan(a_config(batch_size=batch), of=sizes(longest=1000)).memory for batch in (2, 4, 9)]
    assert by_batch[0].activations < by_batch[1].activations < by_batch[2].activations
    assert by_batch[2] == packed.memory
    # A step has no more conversations than there are.
    few = [a_plan(a_config(batch_size=64), of=sizes(counts(records), longest=1000)).memory for records in (2, 4, 9)]
    assert few == by_batch


@pytest.mark.parametrize(
    ("fields", "of", "message"),
    [
        ({}, sizes(counts(0)), "nothing to train on: there is no conversation"),
        (
            {"max_length": 10},
            sizes(counts(9, records=0, tokens=0, trained_tokens=0, dropped_long=7, dropped_untrained=2)),
            "7 longer than max_length=10",
        ),
        ({}, sizes(counts(trained_tokens=0)), "nothing to train on"),
        ({}, sizes(largest_id=128_256), "token ids up to 128,256, and .* embeddings for 128,256 tokens only"),
        ({"max_length": 16_384}, sizes(longest=9000), "9,000 tokens, and .* 8,192 positions; give --max-length 8192"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(fields: dict[str, Any], of: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        a_plan(a_config(**fields), of=of)


@pytest.mark.parametrize(
    ("batch_size", "ranks", "packing", "message"),
    [
        (3, 4, True, "batch_size is 3, and there are 4 processes"),
        (10, 4, False, "--batch-size 8 or 12, or leave packing on"),
        (10, 4, True, None),
        (8, 4, False, None),
    ],
)
def test_a_batch_must_reach_every_process(batch_size: int, ranks: int, packing: bool, message: str | None) -> None:
    config = a_config(batch_size=batch_size, packing=packing)
    devices = replace(gpus(ranks), kind="cpu")
    if message is None:
        assert a_plan(config, devices=devices).devices.ranks == ranks
    else:
        with pytest.raises(InputError, match=re.escape(message)):
            a_plan(config, devices=devices)


@pytest.mark.parametrize(
    ("warmup", "remarked"), [(0, False), (0.1, False), (3, False), (4, True), (5, True), (1.0, False)]
)
def test_a_warm_up_that_is_not_shorter_than_the_training_is_remarked(warmup: float, *, remarked: bool) -> None:
    remarks = a_plan(a_config(warmup=warmup, max_steps=4)).remarks
    assert any("the learning rate is never reached" in remark for remark in remarks) == remarked


def test_what_text_does_not_reach_is_remarked_and_needs_no_optimizer() -> None:
    towers = {"model.vision_tower": 400_000_000, "model.multi_modal_projector": 3_000_000}
    frozen = replace(LLAMA_8B, unused=towers, trainable=LLAMA_8B.parameters - sum(towers.values()))
    said = " ".join(a_plan(model=frozen).remarks)
    assert "403,000,000 parameters are frozen and get no adapters" in said
    assert "model.vision_tower (400,000,000), model.multi_modal_projector (3,000,000)" in said
    many = replace(LLAMA_8B, unused={f"layers.{n}.k_proj": 1 for n in range(9)})
    assert "layers.3.k_proj (1), 5 more" in " ".join(a_plan(model=many).remarks)
    whole, less = estimated(), estimated(frozen)
    assert less.weights == whole.weights  # they are loaded as all others are
    assert less.optimizer == 8 * frozen.trainable


def test_data_without_mistakes_is_remarked() -> None:
    flawless = sizes(counts(mistake_tokens=0))
    assert any("no turn of the data is marked as a mistake" in remark for remark in a_plan(of=flawless).remarks)
    assert not any(
        "marked as a mistake" in remark for remark in a_plan(a_config(without_refinement=True), of=flawless).remarks
    )


BIG = ModelShape("big", 10**9, 10**9, 16, 2048, 8192, 32000)


def settled(devices: Devices = CPU, **fields: Any) -> ComputeSettings:
    return compute_settings(a_config(**fields), devices, BIG)


def test_auto_on_a_cpu_is_fp32_and_copies(tmp_path: Path) -> None:
    two = replace(CPU, ranks=2)
    assert settled() == ComputeSettings("fp32", "none", gradient_checkpointing=False, attention="auto")
    assert settled(two).parallel == "ddp"
    for stage, wanted in ((2, "zero2"), (3, "zero3")):
        (tmp_path / "own.json").write_text(orjson.dumps({"zero_optimization": {"stage": stage}}).decode())
        assert settled(two, deepspeed=str(tmp_path / "own.json")).parallel == wanted


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read"), ('{"zero_optimization": {"stage": 3}}', "asks for zero3")]
)
def test_a_file_for_deepspeed_is_looked_at_also_where_parallel_is_given(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(InputError, match=said):
        settled(replace(CPU, ranks=2), parallel="zero2", deepspeed=str(tmp_path / "own.json"))


@pytest.mark.parametrize(
    ("fields", "devices", "said"),
    [
        ({"parallel": "none"}, replace(CPU, ranks=2), "'none', and there are 2 processes"),
        ({"parallel": "fsdp"}, CPU, "'fsdp', which accelerate does on GPUs only"),
        ({"parallel": "fsdp", "lora": {"quantize": "4bit"}}, gpus(2), "'fsdp'.*ddp, zero2 or auto"),
    ],
)
def test_sharing_that_cannot_be_is_refused(fields: dict[str, Any], devices: Devices, said: str) -> None:
    with pytest.raises(InputError, match=said):
        settled(devices, **fields)


@pytest.mark.parametrize(("gib", "wanted"), [(80, False), (30, True), (None, True)])
def test_activations_are_computed_again_where_they_would_fill_the_memory(gib: int | None, wanted: bool) -> None:
    def found(kind: Any = "gpu", **fields: Any) -> bool:
        devices = Devices(kind, "toy", 1, gib and gib * GIB)
        return settled(devices, max_length=16384, **fields).gradient_checkpointing

    assert found() == wanted
    assert not found("cpu")
    assert found(gradient_checkpointing=True)
    assert not found(gradient_checkpointing=False)


def test_bf16_is_taken_where_it_is_not_emulated() -> None:
    for bf16, wanted in ((True, "bf16"), (False, "fp32")):
        assert settled(replace(gpus(), bf16=bf16)).precision == wanted
        assert settled(replace(gpus(), bf16=bf16), precision="bf16").precision == "bf16"


def test_where_copies_do_not_fit_the_model_is_split() -> None:
    assert [settled(gpus(8, gib)).parallel for gib in (80, 8)] == ["ddp", "fsdp"]
    assert settled(gpus(8, 8), lora={"quantize": "4bit"}).parallel == "ddp"
