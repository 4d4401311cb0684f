"""What the curator refuses: copies and what an evaluation set holds, by the order of the commits and by nothing
else."""

import sys
from pathlib import Path

import orjson
import pytest
from diversity_scripts import drawn, renamed
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import dm, player, provenance
from samples import trajectory as sample

from refinesynth.diversity import Contamination, Novelty
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.outcome import Cost, EpisodeOutcome, Refused
from refinesynth.rules import Violation
from refinesynth.settings import Curation
from refinesynth.synthesis.curator import Curator
from refinesynth.trajectory import Persona, Script, Trajectory, Usage

FEW = settings(max_examples=max(5, settings().max_examples // 2))
SECRET = "the ancient lighthouse keeper paints seven wooden boats every single winter morning before dawn"
PERSONA = Persona(text="Somebody")


def trajectory(identity: str, script: Script, *, secret: bool = False) -> Trajectory:
    turns = player("look", SECRET if secret else "Hm."), dm("Task Succeed")
    return sample(*turns, script=script, id=identity, persona=PERSONA, origin=provenance(attempts=2))


def outcome(index: int, *trajectories: Trajectory, wasted: int = 0, cost: float | None = 1.0) -> EpisodeOutcome:
    refused = Refused(
        episode=f"{index:06d}",
        persona=PERSONA,
        stage="draft",
        attempt=1,
        text="no JSON",
        violations=(Violation(rule="TaskSucceed", turn=0, code="wrong", message="No."),),
        usage=Usage(requests=1, input_tokens=wasted),
        cost_usd=0.25,
    )
    return EpisodeOutcome(
        index=index,
        id=f"{index:06d}",
        persona=PERSONA,
        trajectories=trajectories,
        refused=(refused,) if wasted else (),
        usage=Usage(requests=5, input_tokens=100 + wasted, output_tokens=7),
        cost_usd=cost,
    )


def one(index: int, script: Script, *, secret: bool = False) -> EpisodeOutcome:
    return outcome(index, trajectory(f"{index:06d}", script, secret=secret))


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("eval") / "test.jsonl"
    path.write_bytes(orjson.dumps({"goal": SECRET}) + b"\n")
    return path


def curator(evaluation: Path | None = None, *, threshold: float = 0.85) -> Curator:
    return Curator(
        novelty=Novelty(threshold), contamination=None if evaluation is None else Contamination([evaluation])
    )


def test_a_copy_is_refused_and_says_of_what_and_how_much() -> None:
    curated = curator()
    first = one(0, drawn(1))
    assert curated.curate(first) is first
    copy = outcome(1, trajectory("000001", renamed(drawn(1))), wasted=30)
    after = curated.curate(copy)
    assert (after.trajectories, after.accepted) == ((), False)
    before, refused = after.refused
    assert before == copy.refused[0]
    assert (refused.stage, refused.episode, refused.attempt) == ("draft", "000001", 2)
    assert refused.draft == copy.trajectories[0].draft()
    (violation,) = refused.violations
    assert (violation.rule, violation.code, violation.keeps_prefix) == ("NearDuplicate", "near_duplicate", False)
    assert "000000 by 1.00" in violation.message
    assert after.reason == violation.message
    assert (after.usage, after.cost_usd) == (copy.usage, copy.cost_usd)
    # What the episode took is wasted now, all of it.
    assert sum((Cost(usage=item.usage, cost_usd=item.cost_usd) for item in after.refused), Cost()) == Cost(
        usage=copy.usage, cost_usd=copy.cost_usd
    )


def test_what_an_evaluation_set_holds_is_refused(evaluation: Path) -> None:
    dirty, clean = one(0, drawn(1), secret=True), one(1, drawn(2))
    refusing = curator(evaluation)
    after = refusing.curate(dirty)
    assert after.trajectories == ()
    (violation,) = after.refused[0].violations
    assert violation.rule == "Contaminated"
    assert f"{evaluation}:1" in violation.message
    assert "turn 1 thought 'the ancient lighthouse" in violation.message
    assert refusing.curate(clean) is clean


def test_settings_become_a_curator(evaluation: Path) -> None:
    idle = Curator.of(Curation())
    same = one(0, drawn(1), secret=True)
    assert idle.curate(same) is same
    assert idle.curate(same) is same
    both = Curator.of(Curation(near_duplicates=0.9, contamination=(str(evaluation),), words=4))
    assert not both.curate(same).accepted
    assert both.curate(one(1, drawn(1))).accepted
    assert not both.curate(one(2, drawn(1))).accepted
    with pytest.raises(InputError, match="cannot be read"):
        Curator.of(Curation(contamination=(str(evaluation) + ".missing",)))


def test_the_plays_of_one_script_are_no_copies_of_each_other() -> None:
    curated = curator()
    plays = outcome(0, *(trajectory(f"000000{suffix}", drawn(1)) for suffix in ("", "-1", "-2")))
    assert curated.curate(plays) is plays
    again = outcome(1, *(trajectory(f"000001{suffix}", drawn(1)) for suffix in ("", "-1")), cost=None)
    after = curated.curate(again)
    assert after.trajectories == ()
    assert len(after.refused) == 2
    assert sum(item.usage.output_tokens for item in after.refused) == again.usage.output_tokens
    assert all(item.cost_usd is None for item in after.refused)


def test_of_several_plays_those_that_are_clean_are_kept(evaluation: Path) -> None:
    curated = curator(evaluation)
    plays = outcome(
        0,
        trajectory("000000", drawn(1), secret=True),
        trajectory("000000-1", drawn(1)),
        trajectory("000000-2", drawn(1)),
    )
    after = curated.curate(plays)
    assert [kept.id for kept in after.trajectories] == ["000000-1", "000000-2"]
    assert after.reason is None
    assert [item.rejecting for item in after.refused] == [("Contaminated",)]
    # A third of what the episode took.
    assert after.refused[0].usage.input_tokens == 33
    message = curated.curate(one(1, drawn(1))).reason or ""
    assert "that of 000000-1 by 1.00" in message


@FEW
@given(
    order=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=10),
    cut=st.integers(0, 10),
    threshold=st.floats(0.3, 1),
)
def test_going_on_later_is_as_good_as_never_having_stopped(
    evaluation: Path, order: list[tuple[int, bool, bool]], cut: int, threshold: float
) -> None:
    outcomes = [
        one(index, renamed(drawn(seed)) if copy else drawn(seed), secret=secret)
        for index, (seed, copy, secret) in enumerate(order)
    ]
    whole = curator(evaluation, threshold=threshold)
    answers = [whole.curate(given_) for given_ in outcomes]
    continued = curator(evaluation, threshold=threshold)
    committed = [Trajectory.from_json(kept.to_json()) for answer in answers[:cut] for kept in answer.trajectories]
    continued.learn(committed)
    assert [continued.curate(given_) for given_ in outcomes[cut:]] == answers[cut:]
    # Nothing appears from nowhere, and nothing is lost.
    for given_, answer in zip(outcomes, answers, strict=True):
        assert len(answer.trajectories) + len(answer.refused) == len(given_.trajectories) + len(given_.refused)


@pytest.mark.parametrize("package", ["numpy", "datasketch"])
def test_a_missing_package_is_named_before_anything_is_played(
    evaluation: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for curation in (Curation(near_duplicates=0.9), Curation(contamination=(str(evaluation),))):
        with pytest.raises(ConfigurationError, match=r"refinesynth\[diversity\]"):
            Curator.of(curation)
    assert Curator.of(Curation()).curate(one(0, drawn(0))).accepted
