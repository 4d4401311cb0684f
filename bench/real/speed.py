"""Tokens per second with a real pretrained model, ours beside plain transformers; one thread, CPU time.

    python -m bench.real.speed             measures (about a quarter of an hour) and writes docs/experiments/real-model.md

Training: the same plays, masks and optimizer steps; the second of two passes counts. Playing: the same starts, greedily.
Each row is measured in a process of its own.
"""

import argparse
import os
import runpy
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import orjson

from bench.figures import Figure, Section, table
from bench.page import write_section
from bench.real.data import ARMS, SIZES, read, records_of, write
from bench.real.report import PAGE
from bench.real.unit import BATCH, CACHE, PRECISION, SETTINGS
from bench.train.load import Load
from bench.train.second_epoch import Stopwatch, callback


def main() -> int:
    """0 when the table is written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="pilot", choices=tuple(SIZES), help="of bench.real, for plays and starts")
    parser.add_argument("--plays", type=int, default=8, help="to train on")
    parser.add_argument("--starts", type=int, default=8, help="to play from")
    parser.add_argument("--model", type=Path, help="GGUF file or folder; by default SmolLM2 from the package index")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    model = asked.model or runpy.run_path(str(Path(__file__).parents[2] / "tests" / "real_model.py"))["smollm2"]()
    write(CACHE / asked.size, 0, SIZES[asked.size])
    section = measure(model, CACHE / asked.size, plays=asked.plays, starts=asked.starts)
    text = f"{section.how}\n\n{table([section])}"
    print(text)
    write_section("bench.real.speed", "Tokens per second, beside plain transformers", text, page=asked.page)
    return 0


def measure(model: Path, data: Path, *, plays: int, starts: int) -> Section:
    """Time all rows, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arm = ARMS["full"]
        assert arm is not None
        records = records_of(arm, data, 0)[:plays]
        (folder / "plays.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))
        load = Load(str(model), str(folder / "plays.jsonl"), name, BATCH, BATCH, int(SETTINGS["max_length"]), "cpu")
        tokens, trained = _alone(_tokens, load)
        ours, plain = _alone(_trained_by_us, load), _alone(_trained_plainly, load)
        clean = [one for one in read(data / "starts.jsonl.gz") if one["kind"] != "own"][:starts]
        batched, single = _alone(_played_at_once, model, clean), _alone(_played_plainly, model, clean)
    figures = (
        Figure(
            what="training, transformers' Trainer", value=tokens / plain[0], unit="tokens/s", note=_memory(plain[1])
        ),
        Figure(
            what="training, refinesynth",
            value=tokens / ours[0],
            unit="tokens/s",
            reference=tokens / plain[0],
            note=_memory(ours[1]),
        ),
        Figure(
            what="playing, generate() turn by turn",
            value=single[0] / single[1],
            unit="tokens/s",
            note=f"{single[0]} tokens written",
        ),
        Figure(
            what=f"playing, {len(clean)} plays at once",
            value=batched[0] / batched[1],
            unit="tokens/s",
            reference=single[0] / single[1],
            note=f"{batched[0]} tokens written, {_same(batched[2], single[2])} of {len(clean)} plays have the same outcome",
        ),
    )
    return Section(
        title="SmolLM2-135M-Instruct, one thread of a CPU" if "SmolLM2" in model.name else model.name,
        how=f"Training: {len(records)} plays of {tokens:,} tokens, {trained / tokens:.0%} of them trained, {BATCH} plays per step, all weights, "
        f"fp32, the second of two passes. Playing: {len(clean)} starts, greedy, fp32; only written tokens count, "
        "and reading is in the time. CPU time; memory is the second pass's peak beside the weights.",
        figures=figures,
    )


def _memory(mib: float) -> str:
    return f"{mib:,.0f} MiB"


def _same(one: list[Any], other: list[Any]) -> int:
    return sum(left == right for left, right in zip(one, other, strict=True))


def _alone(job: Any, *given: Any) -> Any:
    """Run a job in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
        return worker.submit(job, *given).result()


def _rendered(load: Load, folder: str) -> list[Any]:
    from transformers import AutoTokenizer

    from refinesynth.train.data.conversation_reader import read_conversations
    from refinesynth.train.render import Renderer

    tokenizer = cast("Any", AutoTokenizer).from_pretrained(folder)
    records = [orjson.loads(line) for line in Path(load.data).read_bytes().splitlines()]
    renderer = Renderer(tokenizer)
    return [renderer.render(one)[0] for one in read_conversations([records])]


def _tokens(load: Load) -> tuple[int, int]:
    from refinesynth.files.gguf import unpack_gguf

    made = _rendered(load, str(unpack_gguf(load.model)))
    return sum(map(len, made)), sum(one.trained for one in made)


def _trained_by_us(load: Load) -> tuple[float, float]:
    from bench.train.our_job import Passes
    from refinesynth.files.gguf import unpack_gguf
    from refinesynth.train import Trainer

    watch, folder = Stopwatch("cpu"), Path(unpack_gguf(load.model))
    steps = -(-len(Path(load.data).read_bytes().splitlines()) // BATCH)
    settings: dict[str, Any] = {
        **SETTINGS,
        "precision": PRECISION["cpu"],
        "epochs": 2,
        "log_every": steps,
        "device": "cpu",
    }
    shutil.rmtree(output := Path(load.out) / "ours", ignore_errors=True)
    trainer = Trainer(model=folder, data=load.data, output=output, **settings)
    trainer.train(events=Passes(watch, folder))
    return watch.seconds, watch.memory


def _trained_plainly(load: Load) -> tuple[float, float]:
    """Train by transformers' Trainer on padded rows with our labels."""
    import torch
    from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer, TrainingArguments
    from transformers import AutoTokenizer as Tokenizers

    from refinesynth.files.gguf import unpack_gguf
    from refinesynth.train.tokens import Label

    torch.set_num_threads(1)
    folder = str(unpack_gguf(load.model))
    rows = [
        {
            "input_ids": one.input_ids.tolist(),
            "labels": [
                int(token) if label == Label.TRAINED else -100
                for token, label in zip(one.input_ids, one.labels, strict=True)
            ],
        }
        for one in _rendered(load, folder)
    ]
    watch = Stopwatch("cpu")
    arguments = TrainingArguments(
        output_dir=str(Path(load.out) / "plain"),
        per_device_train_batch_size=BATCH,
        num_train_epochs=2,
        learning_rate=float(SETTINGS["learning_rate"]),
        lr_scheduler_type="cosine",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    cast("Any", Trainer)(
        model=cast("Any", AutoModelForCausalLM).from_pretrained(folder, dtype=torch.float32),
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(cast("Any", Tokenizers).from_pretrained(folder)),
        callbacks=[callback(watch)],
    ).train()
    return watch.seconds, watch.memory


def _played_at_once(model: Path, starts: list[dict[str, Any]]) -> tuple[int, float, list[bool]]:
    from bench.real.playing import play

    began = time.process_time()
    outcomes = play(model, starts, seed=0, device="cpu")
    return sum(one["tokens"] for one in outcomes), time.process_time() - began, [one["success"] for one in outcomes]


def _played_plainly(model: Path, starts: list[dict[str, Any]]) -> tuple[int, float, list[bool]]:
    """Play one start after the other; each turn reads its whole chat again."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from bench.real.playing import MOST_TOKENS, Play
    from refinesynth.files.gguf import unpack_gguf

    torch.set_num_threads(1)
    began, folder = time.process_time(), unpack_gguf(str(model))
    tokenizer = cast("Any", AutoTokenizer).from_pretrained(folder)
    loaded = cast("Any", AutoModelForCausalLM).from_pretrained(folder, dtype=torch.float32).eval()
    written, successes = 0, list[bool]()
    for start in starts:
        one = Play(start, tokenizer, 0)
        while not one.over:
            prompt = tokenizer.apply_chat_template(
                one.messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            with torch.inference_mode():
                answer = loaded.generate(**prompt, max_new_tokens=MOST_TOKENS, do_sample=False)
            for token in answer[0, prompt["input_ids"].shape[1] :].tolist():
                one.write(token)
        written += one.written
        successes.append(one.world.success)
    return written, time.process_time() - began, successes


if __name__ == "__main__":
    sys.exit(main())
