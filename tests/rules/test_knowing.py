"""Knowing where something is before anybody could: what is blamed, and what honest exploration is free to do."""

from random import Random

import pytest
from grounded_corruptions import grounded_corruptions
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_drafts import executed
from samples import dm, player, with_rulebook
from words_corpus import HOUSE

from refinesynth import rules, testing
from refinesynth.prompts.prompt_library import shipped_examples
from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.scene import GROUNDED, draw_scene
from refinesynth.rules.information_leak import KnowsOnlyWhatWasSeen
from refinesynth.trajectory import Draft, DraftTurn, MistakeKind, Script, Sight
from refinesynth.world import ground_actions, world_of
from refinesynth.world.hidden_places import hidden_names

FEWER = settings(max_examples=max(8, settings().max_examples // 8))
KEY = "take red key from drawer"


def played(*acts: str, script: Script = HOUSE, opening: str = "") -> Draft:
    return executed(script, *acts, opening=opening)


def blamed(draft: Draft) -> list[int]:
    return [found.turn for found in KnowsOnlyWhatWasSeen()(draft)]


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        # Straight for it, at once or after something else.
        ((KEY,), [0]),
        (("look", "turn lamp on", KEY), [4]),
        # Guessed wrong: nobody who knew would.
        (("take apple from drawer",), []),
        (("take red key from fridge",), []),
        # Looked for where it could be.
        (("go to hall", "open drawer", KEY), []),
        (("open drawer", KEY), []),
        (("go to hall", "look", KEY), [4]),
        # The last place that is left.
        (("open fridge", KEY), []),
        # Something in sight, or nowhere.
        (("take blue mug from fridge", "take letter from drawer"), []),
        # Looking is free.
        (("open drawer", "go to cellar", "open fridge", "look", "go to hall", "open drawer"), []),
    ],
)
def test_what_nobody_could_know_is_blamed(acts: tuple[str, ...], expected: list[int]) -> None:
    assert blamed(played(*acts)) == expected


def test_whoever_was_told_may_know() -> None:
    assert blamed(played(KEY, opening="A red key is somewhere here.")) == []
    assert blamed(played(KEY, opening="You stand in a kitchen.")) == [1]
    told = HOUSE.model_copy(update={"introduction": "The red key lies in the drawer."})
    assert blamed(played(KEY, script=told)) == []
    asked = HOUSE.model_copy(update={"goal": "Fetch the red key."})
    assert blamed(played(KEY, script=asked)) == [0], "that it is wanted says nothing of where it is"
    asked = HOUSE.model_copy(update={"goal": "Fetch the red key from the drawer."})
    assert blamed(played(KEY, script=asked)) == []


def test_a_refusal_tells_where_something_is_only_if_it_says_so() -> None:
    first = played("take red key from fridge")
    key = played(KEY).turns
    refused = dm("There is no red key here.", MistakeKind.LOGIC)
    assert blamed(first.model_copy(update={"turns": (first.turns[0], refused, *key)})) == [], "the fridge was tried"
    for said, expected in (("No. The red key is in the drawer.", []), ("No. What of the red key?", [2])):
        asked = (player("turn lamp off"), dm(said, MistakeKind.LOGIC))
        assert blamed(Draft(script=HOUSE, turns=(*asked, *key), finished=False)) == expected


def test_the_message_can_be_told_to_a_player() -> None:
    [found] = KnowsOnlyWhatWasSeen()(played(KEY))
    assert (found.code, found.keeps_prefix) == ("knows_hidden", True)
    assert '"red key" at "drawer"' in found.message
    assert not {"DM", "mistake", "Turn"} & set(found.message.split())


def test_where_nothing_is_hidden_nothing_is_blamed() -> None:
    assert blamed(played(KEY, script=with_rulebook(HOUSE, sights=()))) == []
    assert blamed(played(KEY).model_copy(update={"script": HOUSE.imagined()})) == []


def test_a_thing_that_says_itself_where_it_is_is_hidden_there() -> None:
    script = Script.model_validate(
        {
            "environment": {
                "you": "hall",
                "things": {"key": {"name": "key", "at": "chest"}, "rope": {"name": "rope", "at": "hall"}},
            },
            "goal": "Get out.",
            "completion_conditions": ["out"],
            "actions": [
                {
                    "name": "get {thing} from {place}",
                    "pattern": "get (.+) from (.+)",
                    "parameters": {"thing": ["key", "rope"], "place": ["hall", "chest", "well"]},
                    "requires": [
                        {"condition": "state.things[thing].at == place"},
                        {"condition": "state.you == place", "kind": "place"},
                    ],
                }
            ],
            "rulebook": {
                "goal": ["state.you == 'out'"],
                "sights": [
                    {"each": "/things", "path": "/things/{each}/name", "when": "state.things[each].at == state.you"}
                ],
            },
        }
    )
    assert hidden_names(world_of(script)).places_of == {"key": {"chest"}}
    assert blamed(played("get key from chest", script=script)) == [0]
    assert blamed(played("get key from well", script=script)) == []


def _exploring(script: Script, rng: Random, steps: int = 30) -> Draft:
    """A play by somebody who goes, opens and errs at random with what is in sight, and uses at once what came into
    view."""
    world, state = world_of(script), script.environment
    everything, hidden, used = list(ground_actions(world)), hidden_names(world), set[str]()
    turns: list[DraftTurn] = []
    for _ in range(steps):
        free = hidden.places.union(world.visible(state))
        known = [(text, set(read[1].values())) for text in everything if (read := world.read(text)) is not None]
        sensible = [(text, names & hidden.places_of.keys() - hidden.places) for text, names in known]
        sensible = [(text, things) for text, things in sensible if things <= free]
        fresh = [text for text, things in sensible if things - used and world.step(state, text).kind is None]
        action = rng.choice(fresh or [text for text, _ in sensible])
        ruling = world.step(state, action)
        used.update(ruling.values.values())
        state = ruling.state
        turns += [player(action), dm(ruling.text, ruling.kind) if ruling.kind else dm(ruling.text)]
    return Draft(script=script, turns=tuple(turns), finished=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_honest_exploration_is_never_blamed(family: str) -> None:
    for number in range(6):
        script = draw_scene(f"{family}-{number}{GROUNDED}").executed
        assert blamed(_exploring(script, Random(number))) == []


@pytest.mark.parametrize("number", range(3))
def test_honest_exploration_of_the_shipped_worlds_is_never_blamed(number: int) -> None:
    for script in shipped_examples().grounded:
        assert blamed(_exploring(script, Random(number))) == []


def test_who_reads_the_state_is_blamed_in_the_household() -> None:
    """Whatever is hidden in a home: to take it from where it is, as the first action, is to know."""
    found = 0
    for number in range(12):
        script = draw_scene(f"household-{number}{GROUNDED}").executed
        if "Nobody has told you" not in script.introduction:
            continue
        world = world_of(script)
        take = next(
            action
            for action in script.actions
            if set(action.placeholders) == {"item", "place"}
            and len(action.effects) == 1
            and action.effects[0].from_path
            and "/places" in action.effects[0].from_path
        )
        for item, places in hidden_names(world).places_of.items():
            for place in take.parameters["place"]:
                knew = bool(blamed(played(take.fill({"item": item, "place": place}), script=script)))
                assert knew == (place in places)
                found += knew
    assert found > 10


@pytest.mark.long
@FEWER
@given(testing.valid_grounded_drafts())
def test_it_composes_with_the_chain_by_name(draft: Draft) -> None:
    chain = rules.parse("grounded() & KnowsOnlyWhatWasSeen()")
    assert rules.verify(draft, chain).accepted
    assert rules.parse(repr(chain)) == chain


@FEWER
@given(grounded_corruptions())
def test_what_it_keeps_verifies(corruption: testing.Corruption) -> None:
    rule, draft = KnowsOnlyWhatWasSeen(), corruption.draft
    verdict = rules.verify(draft, rule)
    assert rules.verify(draft.prefix(verdict.verified_turns), rule).accepted


@given(
    st.lists(
        st.sampled_from(["/places/{state:/you}", "/you", "/places", "/{each}/{each}", "/things/{each}/at"]), max_size=4
    )
)
def test_odd_sights_hide_something_or_nothing(paths: list[str]) -> None:
    sights = tuple(Sight(path=path, each="/rooms" if "{each}" in path else None) for path in paths)
    found = hidden_names(world_of(with_rulebook(HOUSE, sights=sights)))
    assert all(found.places_of[name] <= found.places for name in found.places_of)
