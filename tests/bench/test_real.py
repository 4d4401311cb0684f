"""The experiment with a pretrained model: its data and masks, its plays, its resuming and its report."""

from pathlib import Path
from typing import Any, cast

import orjson
import pytest

pytest.importorskip("transformers", reason="needs the extra train")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.ablation.families import FAMILIES, chain_of
from bench.ablation.speaking import save_untrained, trained_tokenizer
from bench.real import playing, unit
from bench.real.data import ARMS, KEPT, SIZES, TUNED, read, records_of, write
from bench.real.playing import Play
from bench.real.report import STARTS, difference, picture, read_results, report
from refinesynth.chat import parse_player, render_player
from refinesynth.environments import GroundedEnvironment
from refinesynth.train import Trainer
from refinesynth.train.data.conversation_reader import read_conversations
from refinesynth.train.events import TrainResult
from refinesynth.train.labelled_conversation import LossOn
from refinesynth.trajectory import PlayerTurn

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    write(folder, 0, SIZES["smoke"])
    return folder


@pytest.fixture(scope="module")
def tiny(data: Path) -> Path:
    """An untrained model that speaks the plays' words."""
    texts = [one["content"] for record in records_of(_arm("full"), data, 0) for one in record["messages"]]
    return save_untrained(trained_tokenizer(texts, names=()), data / "tiny", seed=0, width=32, layers=2)


def _arm(name: str) -> Any:
    arm = ARMS[name]
    assert arm is not None
    return arm


def test_all_arms_have_the_same_worlds_and_mask_what_they_say(data: Path) -> None:
    worlds, masked = set[tuple[str, ...]](), dict[str, int]()
    for name in ARMS.keys() - {"untuned"}:
        records = records_of(_arm(name), data, 0)
        worlds.add(tuple(record["messages"][0]["content"] for record in records))
        masked[name] = 0
        for record in records:
            (one,) = read_conversations([[record]])
            acts = [
                (turn.label, trained)
                for turn, trained in zip(one.turns, one.trained(LossOn(_arm(name).loss_on)), strict=True)
                if turn.role == "assistant"
            ]
            behind = {at for at in range(1, len(acts)) if acts[at - 1][0] == "mistake" and acts[at][0] != "mistake"}
            wrong = {at for at, (label, _) in enumerate(acts) if label == "mistake"}
            assert not wrong or "kept" not in record["id"]
            silent = {at for at, (_, trained) in enumerate(acts) if not trained}
            expected = {"erroneous loss": set[int]()}.get(name, wrong | behind if "masked" in name else wrong)
            assert silent == expected
            masked[name] += len(silent)
    assert len(worlds) == 1
    assert masked["clean"] == masked["erroneous loss"] == 0
    assert masked["repair masked"] > masked["full"] > 0


def test_an_unrelated_repair_is_accepted_and_brings_the_goal_no_nearer(data: Path) -> None:
    asides = 0
    for record in records_of(_arm("unrelated repair"), data, 0):
        name = record["id"]
        families = {family.name: family for family in FAMILIES}
        family = KEPT if "kept" in name else TUNED[int(name.rpartition(" ")[2]) % len(TUNED)]
        world = GroundedEnvironment(chain_of(families[family], name).script)
        mistaken = False
        for said in (one for one in record["messages"] if one["role"] == "assistant"):
            before = world.progress
            world.act(parse_player(said["content"]).action)
            if mistaken and said["loss"]:
                asides += 1
                assert world.progress == before
            mistaken = not said["loss"]
        assert world.success
    assert asides


def test_a_player_that_takes_the_known_way_succeeds_and_reads_the_words_of_training(data: Path, tiny: Path) -> None:
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(tiny)
    for start in read(data / "starts.jsonl.gz"):
        if start["before"]:
            continue
        one = Play({**start, "kind": "clean"}, tokenizer, 0)
        fed = list(one.told)
        assert one.script.rulebook is not None
        for action in one.script.rulebook.solution:
            said = render_player(PlayerTurn(thought="Go on.", action=action))
            for token in [*tokenizer(said, add_special_tokens=False).input_ids, tokenizer.eos_token_id]:
                one.write(token)
                fed += one.told
        assert one.outcome()["success"]
        assert tokenizer.decode(fed) == tokenizer.apply_chat_template(
            one.messages, tokenize=False, add_generation_prompt=True
        )


def test_a_play_does_not_depend_on_those_beside_it(data: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MOST_TOKENS", 6)
    monkeypatch.setattr(playing, "MOST_ACTIONS", 3)
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(tiny)
    model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(tiny).to(torch.float64).eval()
    starts = read(data / "starts.jsonl.gz")
    together, alone = ([Play(start, tokenizer, 0) for start in starts] for _ in range(2))
    playing._play(model, list(together))  # pyright: ignore[reportPrivateUsage]
    for one in alone:
        playing._play(model, [one])  # pyright: ignore[reportPrivateUsage]
    assert [one.messages for one in together] == [one.messages for one in alone]
    assert {one.kind for one in together} >= {"own", "clean", "imposed 1", "kept family, imposed"}


def test_a_unit_that_was_killed_behind_its_training_goes_on_with_the_trained_weights(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(playing, "play", _stopped)
    with pytest.raises(KeyboardInterrupt):
        unit.run("full", 0, size="smoke", model=tiny, device="cpu", results=tmp_path)
    weights = tmp_path / "cache" / "smoke" / "full-0" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert not list(tmp_path.rglob("full-0.json"))
    monkeypatch.setattr(playing, "play", _played)
    made = unit.run("full", 0, size="smoke", model=tiny, device="cpu", results=tmp_path)
    assert weights.stat().st_mtime_ns == before
    assert made["training"]["steps"] == SIZES["smoke"].plays // unit.BATCH
    assert read_results(tmp_path / "smoke") == [orjson.loads(orjson.dumps(made))]


def test_a_training_that_a_signal_ended_is_not_played(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(trainer: Trainer, **__: object) -> TrainResult:
        Path(trainer.config.output).mkdir(parents=True)
        return TrainResult(output=tmp_path, steps=1, planned_steps=3, epochs=0.3, loss=1.0, signal=2)

    monkeypatch.setattr(unit, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(Trainer, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unit.run("full", 0, size="smoke", model=tiny, device="cpu", results=tmp_path)
    assert not list(tmp_path.rglob("full-0.json"))


def _stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _played(*_: object, **__: object) -> list[dict[str, Any]]:
    return [{"kind": "own"}]


def _unit(arm: str, seed: int, successes: dict[str, str]) -> dict[str, Any]:
    plays = [
        {
            "kind": kind,
            "world": f"{kind[:4]} {at}",
            "success": mark == "1",
            "erred": mark != "-" if kind == "own" else None,
        }
        | {"at once": None, "repeated": 0, "after_failure": 1, "stuck": False}
        for kind, marks in successes.items()
        for at, mark in enumerate(marks)
    ]
    seconds = {"training": 60.0, "playing": 30.0}
    return {
        "arm": arm,
        "seed": seed,
        "device": "a processor, 1 thread",
        "seconds": seconds,
        "training": {"tokens": 1000},
        "plays": plays,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    kinds = ("imposed 1", "imposed 3", "clean", "kept family, imposed", "kept family, clean")
    for seed in range(3):
        for arm, own, others in (
            ("full", "1110", "1111"),
            ("clean", "00-1", "1111"),
            ("repair masked", "1110", "0101"),
        ):
            path = unit.path_of(arm, seed, "pilot", tmp_path)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(orjson.dumps(_unit(arm, seed, {"own": own, **dict.fromkeys(kinds, others)})))
    return tmp_path


def test_the_report_compares_by_seed_and_world_and_leaves_out_plays_without_a_mistake(results: Path) -> None:
    units = read_results(results / "pilot")
    mean, low, high, p = difference(units, "clean", "full", next(iter(STARTS)))
    assert mean == pytest.approx(100 / 3 - 75)
    assert low < mean < high
    assert 0 < p <= 1
    assert difference(units, "repair masked", "full", "clean")[0] == pytest.approx(-50)
    told = report(units)
    assert "| full | 3 | 100.0 ± 0.0 % | 75.0 ± 0.0 |" in told
    assert "| clean | 3 | 75.0 ± 0.0 % | 33.3 ± 0.0 | -41.7 [" in told
    assert "that no more than 5 points are lost is shown" in told
    picture(units, results / "plot.png")
    assert (results / "plot.png").read_bytes().startswith(b"\x89PNG")
