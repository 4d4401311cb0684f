"""A run's figures: kept with each episode and summed up, they say what reading all trajectories would say."""

from collections import Counter
from statistics import median

from diversity_scripts import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import dm, player, provenance
from samples import trajectory as sample

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import Severity, Violation, script
from refinesynth.rules.repairs import refinements
from refinesynth.run.completed_episode import FEATURES, UNREADABLE, EpisodeLine, EpisodeStats
from refinesynth.run.stats import RunStats, TrajectoryStats, rule_names
from refinesynth.run.status import Distribution, RuleStage, stages
from refinesynth.trajectory import Difficulty, DungeonMasterTurn, Persona, PlayerTurn, Trajectory

FEW = settings(max_examples=max(5, settings().max_examples // 2))
PERSONA = Persona(text="Somebody")
FLAGS = ("parameter_error", "place_error", "logic_error")
CHAIN = repr(script())
RULES = rule_names(CHAIN)


def trajectory(seed: int, kinds: list[str], steps: int | None) -> Trajectory:
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for kind in [*kinds, ""]:
        flags = {"transient": kind == "transient", "plain": kind == "plain"}
        turns += (player("look", ""), dm("Fine.", kind.removesuffix("_error"), thought="").model_copy(update=flags))
    difficulty = (
        None
        if steps is None
        else Difficulty(
            steps=steps, branching=1, preconditions=steps, distractors=steps / 10, hidden=steps % 3, losable=steps > 5
        )
    )
    return sample(*turns, script=drawn(seed), persona=PERSONA, origin=provenance(difficulty=difficulty))


def refused_script(*rules: str) -> Refused:
    warning = Violation(rule="Warns", turn=0, code="x", message="", severity=Severity.WARN)
    found = tuple(Violation(rule=rule, turn=0, code="x", message="") for rule in rules)
    return Refused(
        episode="x", persona=PERSONA, stage="script", attempt=1, script=drawn(0), violations=(warning, *found)
    )


TRAJECTORIES = st.builds(
    trajectory,
    st.integers(0, 4),
    st.lists(st.sampled_from([*FLAGS, "transient", "plain", ""]), max_size=5),
    st.none() | st.integers(0, 9),
)
REFUSED = st.lists(st.lists(st.sampled_from(RULES), max_size=3).map(lambda rules: refused_script(*rules)), max_size=3)


def outcome(trajectories: list[Trajectory], refused: list[Refused]) -> EpisodeOutcome:
    return EpisodeOutcome(
        index=0,
        id="x",
        persona=PERSONA,
        trajectories=tuple(trajectories),
        refused=tuple(refused),
        salvaged={"call in text": len(refused)},
    )


OUTCOMES = st.builds(outcome, st.lists(TRAJECTORIES, max_size=3), REFUSED)


@FEW
@given(st.lists(OUTCOMES, max_size=5))
def test_the_sums_say_what_the_trajectories_say(outcomes: list[EpisodeOutcome]) -> None:
    totals = RunStats()
    for one in outcomes:
        # Through JSON, as the journal keeps it.
        totals.add(EpisodeLine.from_json(EpisodeLine.of(one).to_json()))
    figures = RunStats.from_json(totals.to_json()).figures
    everything = [found for one in outcomes for found in one.trajectories]
    lengths = [len(found.turns) for found in everything]
    assert figures.trajectories == len(everything)
    assert figures.turns == Counter(lengths)
    answers = [turn for found in everything for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
    assert figures.mistakes == Counter(turn.mistake_kind.value for turn in answers if turn.mistake_kind)
    refined = [refinements(found) for found in everything]
    assert figures.refinements == sum(one.answered + one.abandoned for one in refined)
    assert figures.abandoned == sum(one.abandoned for one in refined)
    assert figures.unanswered == sum(one.unanswered for one in refined)
    assert figures.transient == sum(turn.transient for turn in answers)
    assert figures.salvaged.total() == sum(len(one.refused) for one in outcomes)
    assert figures.plain == sum(turn.plain for turn in answers)
    difficulties = [found.provenance.difficulty for found in everything]
    assert figures.steps == Counter(known.steps for known in difficulties if known)
    known = [difficulty for difficulty in difficulties if difficulty]
    assert {feature: figures.features[feature] for feature in FEATURES} == {
        "distractors": sum(one.distractors >= 0.5 for one in known),
        "irreversible": sum(one.losable is True for one in known),
        "hidden": sum(one.hidden > 0 for one in known),
        "preconditions": sum(one.preconditions >= 4 for one in known),
    }
    assert figures.passed == sum(bool(one.trajectories) for one in outcomes)
    spread = Distribution.of(figures.turns)
    assert spread == (Distribution(min(lengths), median(lengths), max(lengths)) if lengths else None)
    refused = sum(len(one.refused) for one in outcomes)
    found = stages(figures, CHAIN)
    assert sum(stage.refused for stage in found) == refused
    assert [stage.left for stage in found] == sorted((stage.left for stage in found), reverse=True)
    assert (found[-1].left if found else figures.passed) == figures.passed


def test_names_differ_in_more_than_case_and_white_space() -> None:
    one = trajectory(0, [], None)
    action = one.script.actions[0]
    respelled = action.model_copy(update={"name": f"  {action.name.upper()} "})
    other = one.model_copy(update={"script": one.script.model_copy(update={"actions": (respelled,)})})
    assert set(EpisodeStats.of_records([other]).actions) <= set(EpisodeStats.of_records([one]).actions)


def test_a_script_is_stopped_by_the_first_rule_that_refuses_it() -> None:
    figures = TrajectoryStats()
    refused = (refused_script(), refused_script(RULES[4], RULES[1]), refused_script(RULES[1]), refused_script("MyRule"))
    figures.add(EpisodeStats.of(EpisodeOutcome(index=0, id="x", persona=PERSONA, refused=refused)))
    assert stages(figures, CHAIN) == (
        RuleStage(UNREADABLE, 1, 3),
        RuleStage(RULES[1], 1, 2),
        RuleStage(RULES[4], 1, 1),
        RuleStage("MyRule", 1, 0),
    )


def test_what_was_written_before_there_were_figures_is_read() -> None:
    old = RunStats().model_dump(mode="json", exclude={"figures"})
    assert RunStats.model_validate(old).figures == TrajectoryStats()
    line = EpisodeLine.of(EpisodeOutcome(index=0, id="x", persona=PERSONA)).model_dump(mode="json", exclude={"figures"})
    assert EpisodeLine.model_validate(line).figures == EpisodeStats()
