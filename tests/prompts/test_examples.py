"""The shipped examples: that they are what the prompts ask for, differ from each other, and are drawn for each
episode."""

import re
from collections import Counter
from contextlib import suppress
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHED
from scripted import Scripted

from refinesynth import rules
from refinesynth.actions.matching import match_action
from refinesynth.diversity.novelty import Structure
from refinesynth.prompts import SHOWN, Kind, Prompts, drawn, shipped_examples
from refinesynth.prompts.data_blocks import encode
from refinesynth.roles import InvalidAnswer, Narrator, RulebookWriter, ScriptWriter
from refinesynth.trajectory import Draft, Persona, PlayerTurn, Script

PROMPTS = Prompts()
EXAMPLES = shipped_examples()
SOLUTIONS = {
    "bakery": (
        "read ardoise", "go to boutique", "read carnet", "go to laboratoire", "shape pâte levée",
        "brush pâte levée with lait", "sprinkle sucre perlé on pâte levée", "lay pâte levée on plaque noire",
        "carry plaque noire", "go to fournil", "bake plaque noire in four ventilé", "go to boutique",
    ),
    "card_game": (
        "open lid", "read rules", "look at first card", "look at second card", "look at third card",
        "look at fourth card", "look at fifth card", "change first and second", "change third and fourth",
        "lay moon on fifth", "call",
    ),
    "clinic_reception": (
        "ask courier about complaint", "read protocol card", "lead courier to washroom", "ask courier about insurance",
        "open file for courier", "hand consent form to courier", "tell doctor lime in both eyes, rinsed, on his way",
        "lead courier to treatment room",
    ),
    "greenhouse_panel": (
        "read alarm=31", "read diary=forcing bay", "set bay=forcing bay curtain=open", "set bay=forcing bay vent=40",
        "set bay=forcing bay lamp=off", "confirm alarm=31 note=17 degrees again, curtain stays open",
    ),
    "island_wedding": (
        "ask ferryman about the handcart", "take handcart", "walk to bakery", "show cake receipt to baker",
        "load wedding cake onto handcart", "walk to boathouse", "ask aunt about the tables", "clear long table",
        "set wedding cake on long table", "walk to chapel", "ask organist about music", "ask fiddler about music",
    ),
    "observatory": (
        "queue.show()", "log.read(filters)", "weather.read()", "dome.open()", "dome.turn(135)", "mount.point(comet C7)",
        "camera.cool(-20)", "wheel.select(green)", "camera.expose(120)", "image.send(dr vidal)", "mount.park()",
        "dome.close()",
    ),
    "radio_studio": (
        "look at running order", "look at desk", "fader 2 power on", "load jingle sunrise", "set fader 3 to 7",
        "play jingle", "set fader 3 to 0", "switch red light on", "set fader 2 to 7",
    ),
    "rail_yard": (
        "points north", "drive", "look", "couple w12", "couple w31", "drive", "points departure", "drive", "drop w31",
        "drive",
    ),
    "river_gauges": (
        "list gauges", "read note weir bridge", "connect to weir bridge", "stop logger weir bridge",
        "set offset weir bridge 35", "start logger weir bridge", "take reading weir bridge",
        "show thresholds weir bridge", "publish bulletin amber",
    ),
    "ships_bridge": (
        "read notices", "fog signal on", "helm, steer 310", "engine dead slow ahead",
        "call pilot cutter on channel 71", "rig ladder starboard", "take pilot on board",
    ),
    "sql_shell": (
        "select * from letters;", "select * from readers;", "select * from reservations;", "begin;",
        "update copies set shelf = hold where id = 9001;", "update reservations set state = ready where id = 301;",
        "commit;",
    ),
    "theatre": (
        "read logbook", "go to workshop", "open tool cabinet", "take 500 watt lamp from tool cabinet", "go to stage",
        "fit 500 watt lamp in left spotlight", "open dimmer cupboard", "switch stage breaker on", "go to control booth",
        "start cue harbour",
    ),
    "ticket_queue": (
        "desk show T-104", "desk show T-107", "desk handbook --page merging", "desk handbook --page priorities",
        "desk roster", "desk merge T-107 --into T-104", "desk move T-104 --queue network",
        "desk priority T-104 --level urgent", "desk assign T-104 --to mira",
        "desk reply T-104 --text Mira is on it, and will write by nine.",
    ),
    "town_archive": (
        "search(works, footbridge)", "order(box 88)", "open(box 88)", "read(receipt of 1873)", "return(box 88)",
        "order(box 91)", "open(box 91)", "read(letter of 1872)", "compare(receipt of 1873, letter of 1872)",
        "write_finding(Ferrand built the footbridge)", "return(box 91)",
    ),
}  # fmt: skip
"""How each imagined example is solved, worked out by hand."""


def by_name(folder: str) -> dict[str, Script]:
    found = (files("refinesynth.prompts") / "examples" / folder).iterdir()
    return {entry.name.removesuffix(".json"): Script.from_json(entry.read_bytes()) for entry in found}


SCRIPTS = by_name("scripts")
each = pytest.mark.parametrize("name", sorted(SCRIPTS))


def sentences(text: str) -> int:
    return len(re.findall(r"[.?!](?=\s|$)", text))


def values(script: Script) -> set[str]:
    return {value for action in script.actions for given in action.parameters.values() for value in given}


def test_there_are_enough_to_draw_from_and_to_compare_with() -> None:
    assert SOLUTIONS.keys() == SCRIPTS.keys()
    assert len(EXAMPLES.scripts) == len(SCRIPTS) >= 12
    assert len(EXAMPLES.trajectories) >= 3
    assert len(EXAMPLES.grounded) >= 2 * SHOWN
    assert len({draft.script.goal for draft in EXAMPLES.trajectories}) == len(EXAMPLES.trajectories)


@each
def test_a_script_passes_the_rules_and_is_what_the_prompt_asks_for(name: str) -> None:
    script = SCRIPTS[name]
    verdict = rules.verify(Draft(script=script, finished=False), rules.script())
    assert verdict.violations == ()
    assert 5 <= len(script.actions) <= 12
    assert 1 <= len(script.completion_conditions) <= 4
    assert 2 <= sentences(script.introduction) <= 4
    assert sentences(script.goal) == 1
    assert "hidden" in encode(script.environment)
    # Numbers and words that are settings are no things; what can be named is 10 to 30, places included.
    assert 9 <= len(values(script)) <= 30
    for action in script.actions:
        assert re.sub(r"\{\w+\}", "", action.name).islower()
        assert sentences(action.description) == 1


@each
def test_a_script_can_be_solved_with_its_actions_and_much_of_it_only_distracts(name: str) -> None:
    script, solution = SCRIPTS[name], SOLUTIONS[name]
    assert 6 <= len(solution) <= 12
    used = set[str]()
    for text in solution:
        found = match_action(script.actions, text)
        assert found is not None, text
        used |= set(found.values.values())
    assert len(values(script) - used) >= len(values(script)) / 4


@pytest.mark.parametrize("played", EXAMPLES.trajectories, ids=lambda draft: draft.script.goal[:20])
def test_a_trajectory_passes_the_rules(played: Draft) -> None:
    for chain in (rules.strict(), rules.agentrefine()):
        assert rules.verify(played, chain).violations == ()
    assert isinstance(played.turns[0], PlayerTurn)
    kinds = {turn.mistake_kind for turn in played.turns if turn.role == "DM"} - {None}
    assert len(kinds) >= 2


def test_no_two_scripts_are_much_alike() -> None:
    features = [set(Structure.of(script).actions) for script in (*EXAMPLES.scripts, *EXAMPLES.grounded)]
    for at, one in enumerate(features):
        for other in features[:at]:
            assert len(one & other) / len(one | other) < 0.45
    counts = [len(script.actions) for script in EXAMPLES.scripts]
    assert (min(counts), max(counts)) == (5, 12)


@given(st.integers(0, 2**31), st.integers(0, 9), st.integers(1, 4))
def test_a_draw_is_some_of_them_each_once_and_always_the_same(seed: int, count: int, most: int) -> None:
    items = list(range(count))
    got = drawn(items, Kind.SCRIPTS, seed, most=most)
    assert got == drawn(items, Kind.SCRIPTS, seed, most=most)
    assert list(got) == items[got[0] : got[0] + most] if got else count == 0
    assert len(got) == min(most, count)


def test_few_sets_are_drawn_each_about_as_often_so_that_requests_begin_alike() -> None:
    items = "abcdefg"
    counts = Counter("".join(drawn(items, Kind.GROUNDED, seed)) for seed in range(600))
    assert counts.keys() == {"abc", "def", "efg"}
    assert 150 < min(counts.values()) < max(counts.values()) < 250
    assert {drawn(items, Kind.GROUNDED, seed) == drawn(items, Kind.SCRIPTS, seed) for seed in range(50)} == {
        True,
        False,
    }


async def instructions(writer: type[ScriptWriter | Narrator], seed: int) -> str:
    """What the system is told in the first request."""
    model = Scripted(["{}"])
    asked = writer(model.model, PROMPTS, seed=seed, answers=0)
    with suppress(InvalidAnswer):
        if isinstance(asked, ScriptWriter):
            await asked.write(Persona(text="A joiner."))
        else:
            await asked.tell(SHED)
    return model.asked[0].instructions or ""


@pytest.mark.parametrize("writer", [ScriptWriter, RulebookWriter, Narrator])
async def test_episodes_are_shown_different_examples_after_the_same_words(
    writer: type[ScriptWriter | Narrator],
) -> None:
    told = [await instructions(writer, seed) for seed in range(8)]
    assert told == [await instructions(writer, seed) for seed in range(8)]
    assert len(set(told)) > 1
    # What a provider's cache can keep for all.
    assert len({one.partition("\n<example")[0] for one in told}) == 1
    shown = "\n<example_script>\n" if writer is Narrator else "\n<example>\n"
    assert {one.count(shown) for one in told} == {1 if writer is Narrator else SHOWN}


def test_a_prompt_has_not_become_longer() -> None:
    """Than when the same were always shown: 12,971 characters of scripts, 23,648 of scripts with rulebooks, 13,896 of a
    trajectory."""

    def mean(items: list[str]) -> float:
        return sum(map(len, items)) / len(items)

    assert SHOWN * mean([encode(script) for script in EXAMPLES.scripts]) <= 12_971
    assert SHOWN * mean([encode(script) for script in EXAMPLES.grounded]) <= 23_648
    assert mean([encode(draft) for draft in EXAMPLES.trajectories]) <= 13_896
