"""The experiments on own mistakes: their data and starts, a whole run of small units, and the tables."""

from itertools import islice
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

pytest.importorskip("transformers", reason="needs the extra train")

from transformers import AutoTokenizer

from bench.ablation.playing import play
from bench.ablation.variants import VARIANTS
from bench.ablation.worlds import EVERY, FRESH, KNOWN, SEEN, UNSEEN, scene_of
from bench.real.playing import Play
from bench.repairs import __main__ as program
from bench.repairs.unit import PRICE, TEACHER, Sizes, base_of, path_of, run, starts
from bench.rl.rollouts import play as play_all
from refinesynth.chat import render_player, to_messages
from refinesynth.environments import GroundedEnvironment
from refinesynth.environments.grounded import turns_to_mistake
from refinesynth.settings.mistakes import spread
from refinesynth.trajectory import PlayerTurn, Trajectory

pytestmark = [pytest.mark.train, pytest.mark.long]

ERRORS = ("parameter_error", "place_error", "logic_error")
SMALL = Sizes(worlds=2, tokens=300, rounds=1, scripts=3, updates=1, steps=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a base model that is nearly untrained."""
    folder = tmp_path_factory.mktemp("cache")
    base_of(folder / "seed-03", 3, SMALL.steps)
    return folder


def names_in(record: dict[str, Any]) -> set[str]:
    return {
        word for word in record["script"]["introduction"].replace(".", " ").replace(",", " ").split() if word.isupper()
    }


def test_the_arms_differ_in_clean_plays_and_names_alone() -> None:
    for one in PRICE:
        records = list(islice(one.records(3), 200))
        clean = sum(not Trajectory.from_json(orjson.dumps(record)).mistakes() for record in records) / len(records)
        expected = float(one.name.split(",")[0].split()[-1]) if one.name.startswith("clean") else 0.2
        assert clean == pytest.approx(expected, abs=0.08), one.name
        unseen = {name for record in records for name in names_in(record)} & {*UNSEEN.places, *UNSEEN.items}
        assert bool(unseen) == ("16 names" in one.name)
        assert not {name for record in records for name in names_in(record)} & {*FRESH.every}
    teacher = next(one for one in PRICE if one.name == TEACHER)
    assert list(islice(teacher.records(3), 20)) == list(islice(VARIANTS[0].records(3), 20))


def test_fresh_names_are_known_to_the_base_alone() -> None:
    assert {*FRESH.every}.isdisjoint(EVERY.every)
    assert {*FRESH.every} | {*EVERY.every} == {*KNOWN.every}
    assert len({*KNOWN.every}) == len(KNOWN.every)
    assert {*SEEN.every} < {*EVERY.every}


def test_starts_are_of_the_same_worlds_and_end_with_the_first_mistake() -> None:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for one in starts(8):
        by_kind.setdefault(one["kind"], []).append(one)
    assert {kind: len(each) for kind, each in by_kind.items()} == {
        "own": 8, "mistake": 8, "sampled": 8, "clean": 2, "unseen": 2,
    }  # fmt: skip
    worlds = [[one["script"] for one in by_kind[kind]] for kind in ("own", "mistake", "sampled")]
    assert worlds[0] == worlds[1] == worlds[2]
    for one in by_kind["mistake"]:
        flags = [any(turn[error] for error in ERRORS) for turn in one["before"] if turn["role"] == "DM"]
        assert flags[-1]
        assert not any(flags[:-1])
    assert all(names_in(one) <= {*FRESH.every} | {"I"} for one in by_kind["unseen"])


@pytest.mark.parametrize(("kind", "sampled"), [("own", False), ("sampled", True)])
def test_a_play_is_sampled_until_its_own_mistake_or_to_its_end(kind: str, sampled: bool, cache: Path) -> None:
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(cache / "seed-03" / "base")
    scene = scene_of("held out 0")
    script = orjson.loads(scene.script.to_json())
    one = Play({"kind": kind, "script": script, "before": []}, tokenizer, 0)

    def act(action: str) -> None:
        said = render_player(PlayerTurn(thought="I go.", action=action))
        for token in [*tokenizer(said, add_special_tokens=False).input_ids, tokenizer.eos_token_id]:
            one.write(token)

    assert one.sampled
    assert scene.script.rulebook is not None
    act(scene.script.rulebook.solution[0])
    assert one.sampled
    act(scene.script.rulebook.solution[0])  # one is there already
    assert one.sampled is sampled


def test_a_policy_reads_the_play_that_it_begins_behind(cache: Path) -> None:
    from transformers import AutoModelForCausalLM

    base = cache / "seed-03" / "base"
    model, tokenizer = (cast("Any", one).from_pretrained(base) for one in (AutoModelForCausalLM, AutoTokenizer))
    played = play("test 1", scene_of("test 1"), spread(1.0, clean=0), episode=1)
    before = turns_to_mistake(played)
    world = GroundedEnvironment(played.script, steps=2)
    world.reset(before=before)
    (one,) = play_all(model, tokenizer, [world])
    messages = [{"role": each.role, "content": each.content} for each in to_messages(played)[: len(before) + 1]]
    context = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert one.ids[: len(context)] == context
    assert not any(one.drawn[: len(context)])
    assert one.drawn[len(context)]
    assert world.before == before


def test_a_unit_of_each_experiment_is_measured_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"price": (TEACHER,), "gradient": ("before", "mistakes"), "rounds": ("repaired",)}
    monkeypatch.setattr("bench.repairs.unit.ARMS", few)
    monkeypatch.setattr(program, "ARMS", few)
    for experiment, arms in few.items():
        assert run(experiment, 3, results=tmp_path, cache=cache, sizes=SMALL) == len(arms)
        assert run(experiment, 3, results=tmp_path, cache=cache, sizes=SMALL) == 0
        for arm in arms:
            one = orjson.loads(path_of(experiment, arm, 3, tmp_path).read_bytes())
            assert {len(each["success"]) for each in one["starts"].values()} <= {1, 2}
            assert one["training"]["plays"] > 0
    assert orjson.loads(path_of("gradient", "mistakes", 3, tmp_path).read_bytes())["updates"]
    monkeypatch.setattr("sys.argv", ["bench.repairs", "--seeds", "3,4", "--results", str(tmp_path)])
    assert program.main() == 1
    told = capsys.readouterr().out
    assert "4 of 8 units" in told
    assert "missing: gradient, seed 4: before; mistakes" in told
