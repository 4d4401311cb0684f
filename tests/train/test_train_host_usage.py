"""What a training takes of a machine and its disk: estimated, told, refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from train_values import CPU, GIB, LLAMA_8B, MEANS, a_config, a_plan, counts, gpus, sizes

from refinesynth.errors import InputError
from refinesynth.files import memory
from refinesynth.train.memory import Host, ModelShape, Parallel, Precision
from refinesynth.train.plan import Plan, make_plan

ADAPTED = replace(LLAMA_8B, parameters=LLAMA_8B.parameters + 80_000_000, trainable=80_000_000)
MANY = gpus(8, gib=180)


def planned(
    host: Host | None = None,
    *,
    model: ModelShape = LLAMA_8B,
    precision: Precision = "bf16",
    parallel: Parallel = "fsdp",
    **fields: Any,
) -> Plan:
    config = a_config(**fields)
    means = replace(MEANS, precision=precision, parallel=parallel)
    return make_plan(config, sizes=sizes(held_out=counts(20)), model=model, devices=MANY, means=means, host=host)


@pytest.mark.parametrize(
    ("precision", "parallel", "bytes_each"),
    [
        ("bf16", "ddp", 12),
        ("bf16", "fsdp", 12),
        ("bf16", "zero3", 14),
        ("bf16", "zero2", 16),
        ("bf16-pure", "ddp", 6),
        ("fp64", "fsdp", 24),
    ],
)
def test_a_checkpoint_takes_so_many_bytes_a_parameter(
    precision: Precision, parallel: Parallel, bytes_each: int
) -> None:
    assert planned(precision=precision, parallel=parallel).room.checkpoint == bytes_each * LLAMA_8B.parameters


@pytest.mark.parametrize(("parallel", "bytes_each"), [("ddp", 12), ("fsdp", 16), ("zero3", 16), ("zero2", 20)])
def test_adapters_are_kept_alone(parallel: Parallel, bytes_each: int) -> None:
    room = planned(model=ADAPTED, lora={}, parallel=parallel).room
    assert (room.checkpoint, room.model) == (bytes_each * 80_000_000, 4 * 80_000_000)


def test_fsdps_checkpoints_that_are_all_kept_are_models_too() -> None:
    assert planned(keep="all").room.checkpoint == 16 * LLAMA_8B.parameters


@pytest.mark.parametrize(
    ("fields", "checkpoints"),
    [
        ({"keep": 2}, 4),  # two, the best, and the one that is being written
        ({"keep": 2, "held_out": 0.1, "evaluate_every": "never"}, 3),
        ({"keep": "all"}, 20),  # one for each epoch, and one for each better evaluation that falls elsewhere
        ({"keep": 5, "epochs": 1}, 2),
        ({"save_every": "never"}, 0),
    ],
)
def test_checkpoints_are_counted_that_are_there_at_once(fields: dict[str, Any], checkpoints: int) -> None:
    assert planned(**fields).room.checkpoints == checkpoints


@pytest.mark.parametrize(
    ("dtype", "asked", "bytes_each"),
    [("bfloat16", "auto", 2), ("float32", "auto", 4), (None, "auto", 4), ("bfloat16", "fp32", 4)],
)
def test_the_finished_model_has_the_type_that_it_will_have(dtype: str | None, asked: str, bytes_each: int) -> None:
    assert (
        planned(model=replace(LLAMA_8B, dtype=dtype), save_dtype=asked).room.model == bytes_each * LLAMA_8B.parameters
    )


def test_a_disk_that_is_too_small_is_refused_with_what_to_set() -> None:
    needed = planned().room.disk
    assert planned(Host(8, disk=needed)).host.disk == needed
    with pytest.raises(InputError) as caught:
        planned(Host(8, disk=needed - 1))
    said = str(caught.value)
    assert "4 checkpoints of 89.7 GiB" in said
    assert "--set keep=1, --lora, --set save_every=never" in said
    # What an earlier start of the same training left is among them.
    assert planned(Host(8, disk=needed - 10, there=10)).steps
    with pytest.raises(InputError, match=r"Use --lora, --set save"):
        planned(Host(8, disk=10), keep=1)
    assert planned(Host(8, disk=needed - 1), trainer={"optim": "adamw_8bit"}).steps  # it keeps less


@pytest.mark.parametrize(
    ("parallel", "copies", "bytes_each"), [("ddp", 8, 4), ("zero2", 8, 4), ("zero3", 8, 2), ("fsdp", 1, 4)]
)
def test_every_process_loads_the_model_but_with_fsdp_one_alone(
    parallel: Parallel, copies: int, bytes_each: int
) -> None:
    model = replace(LLAMA_8B, dtype="bfloat16")
    needed = copies * bytes_each * LLAMA_8B.parameters
    assert planned(Host(8), model=model, parallel=parallel).room.host == needed
    assert planned(Host(8, memory=needed), model=model, parallel=parallel).steps
    with pytest.raises(InputError, match=r"8 processes take .* parallel fsdp on GPUs"):
        planned(Host(8, memory=needed - 1), model=model, parallel=parallel)


def test_with_fsdp_every_process_loads_a_model_that_one_cannot_read_for_all() -> None:
    model = replace(LLAMA_8B, read_once=False)
    needed = 8 * 4 * LLAMA_8B.parameters
    assert planned(Host(8), model=model, parallel="fsdp").room.host == needed
    with pytest.raises(InputError, match=r"Use --lora, fewer processes"):
        planned(Host(8, memory=needed - 1), model=model, parallel="fsdp")


def test_on_cpus_the_machine_holds_all_of_it() -> None:
    plan = a_plan()
    assert plan.room.host == plan.memory.fixed == 16 * LLAMA_8B.parameters
    with pytest.raises(InputError, match=r"take 119.7 GiB of it, and it has 64.0 GiB"):
        make_plan(a_config(), sizes=sizes(), model=LLAMA_8B, devices=CPU, means=MEANS, host=Host(1, memory=64 * GIB))


def test_the_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "not" / "yet"
    found = Host.here(output, 2, anew=False)
    assert found.ranks == 2
    assert found.memory is not None
    assert found.memory > 0
    assert found.disk is not None
    assert (found.there, output.exists()) == (0, False)
    (output / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    (output / "checkpoints" / "checkpoint-1" / "weights").write_bytes(b"w" * 1000)
    (output / "checkpoints" / "checkpoint-1" / "dangling").symlink_to("nowhere")
    assert Host.here(output, 1, anew=False).there - 1000 in range(100)
    assert Host.here(output, 1, anew=True).there == 0
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (str(tmp_path / "none"), str(limit)))
    for text, wanted in (("5000", 5000), ("max", found.memory)):
        limit.write_text(text)
        assert Host.here(output, 1, anew=True).memory in {wanted, found.memory}
    limit.write_text("5000")
    assert Host.here(output, 1, anew=True).memory == 5000
