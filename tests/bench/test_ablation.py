"""The experiment's worlds, data and statistics; what they are for is measured, not tested."""

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import orjson
import pytest

pytest.importorskip("transformers", reason="needs the extra train")

from bench.ablation import families
from bench.ablation.experiments import EXPERIMENTS
from bench.ablation.families import FAMILIES, Family
from bench.ablation.playing import play
from bench.ablation.report import difference, holm
from bench.ablation.variants import VARIANTS, Variant, write_data
from bench.ablation.worlds import UNSEEN, scene_of
from refinesynth.settings.mistakes import spread
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory

pytestmark = pytest.mark.train


def plays(number: int, mistakes: bool = True) -> list[Trajectory]:
    chosen = spread(3, clean=0) if mistakes else None
    return [play(f"test {at}", scene_of(f"test {at}"), chosen, episode=at) for at in range(number)]


def test_a_play_without_mistakes_is_never_refused_and_takes_the_known_way() -> None:
    for one in plays(40, mistakes=False):
        solution = one.script.rulebook.solution if one.script.rulebook else ()
        assert tuple(turn.action for turn in one.turns if isinstance(turn, PlayerTurn)) == solution
        assert one.mistakes() == ()


def forms_of(found: Iterable[Trajectory]) -> tuple[set[str], set[str]]:
    """Of the thoughts of right turns, and of those of mistakes."""
    forms = set[str](), set[str]()
    for one in found:
        for act, answer in zip(one.turns[::2], one.turns[1::2], strict=True):
            assert isinstance(act, PlayerTurn)
            assert isinstance(answer, DungeonMasterTurn)
            forms[answer.flagged].add(re.sub(r"[A-Z]{2}", "NAME", act.thought))
    return forms


def test_no_form_of_a_thought_tells_a_mistake_from_a_right_turn() -> None:
    right, wrong = forms_of(plays(200))
    assert wrong == right


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
def test_a_chain_takes_its_known_way_and_errs_in_the_words_of_right_turns(family: Family) -> None:
    for one in islice(families.plays((family,), "test", None), 20):
        solution = one.script.rulebook.solution if one.script.rulebook else ()
        assert tuple(turn.action for turn in one.turns if isinstance(turn, PlayerTurn)) == solution
        assert one.mistakes() == ()
    right, wrong = forms_of(islice(families.plays((family,), "test", spread(3, clean=0)), 100))
    assert wrong == right


@pytest.mark.parametrize("seed", range(5))
def test_the_family_that_is_played_was_not_tuned_on(seed: int) -> None:
    asked = EXPERIMENTS["generalisation"]
    kinds = asked.kinds(seed, 4)
    goals = {kind: {record["script"]["goal"].split()[0] for record in records} for kind, records in kinds.items()}
    for variant in asked.variants(seed):
        tuned = {record["script"]["goal"].split()[0] for record in islice(variant.records(seed), 8)}
        assert not tuned & goals["other"], variant.name
        assert goals["tuned"] <= tuned


def test_worlds_of_unseen_names_share_none_with_those_of_training() -> None:
    seen, unseen = scene_of("test 1"), scene_of("test 1", UNSEEN)
    assert not {*seen.names.verbs.values()} & {*unseen.names.verbs.values()}
    assert not {*seen.names.places} & {*unseen.names.places}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_each_variants_data_is_the_same_again(variant: Variant, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    number = write_data(variant, data, seed=3, tokens=1_000, count_tokens=lambda text: len(text.split()))
    assert len(data.read_bytes().splitlines()) == number
    again = tmp_path / "again.jsonl"
    assert write_data(variant, again, seed=3, tokens=1_000, count_tokens=lambda text: len(text.split())) == number
    assert again.read_bytes() == data.read_bytes()


def test_a_shuffled_repair_is_anothers(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    named = {one.name: one for one in VARIANTS}
    for name, path in (("repairs shuffled", data), ("full", tmp_path / "full.jsonl")):
        write_data(named[name], path, seed=3, tokens=1_000, count_tokens=lambda text: len(text.split()))
    shuffled = [orjson.loads(line) for line in data.read_bytes().splitlines()]
    whole = {one.id: one for one in map(Trajectory.from_json, (tmp_path / "full.jsonl").read_bytes().splitlines())}
    changed = same = 0
    for record in shuffled:
        said = [message["content"] for message in record["messages"] if message["role"] == "assistant"]
        own = whole.get(record["id"])
        acts = [turn for turn in own.turns if isinstance(turn, PlayerTurn)] if own else []
        for text, act in zip(said, acts, strict=False):
            changed += not text.endswith(f"Action: {act.action}")
            same += text.endswith(f"Action: {act.action}")
    assert same > changed > 0


def test_holms_correction_is_the_published_one() -> None:
    # Holm (1979): the smallest is multiplied by their number, the next by one less, and none falls below one before it.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_a_difference_is_paired_by_seed_and_world() -> None:
    rng = np.random.default_rng(0)
    worlds = ["".join(map(str, rng.integers(2, size=64))) for _ in range(8)]
    flipped = [one.replace("1", "0", 8) for one in worlds]

    def models(marks: list[str]) -> dict[int, dict[str, object]]:
        return {seed: {"starts": {"mistake": {"success": one}}} for seed, one in enumerate(marks)}

    both = {"full": models(worlds), "clean only": models(flipped)}
    mean, low, high, p, seeds = difference(both, "clean only", "full", "mistake")
    assert (mean, seeds) == (pytest.approx(-12.5), 8)
    assert low < mean < high < 0
    assert p == pytest.approx(2 / 2**8)
