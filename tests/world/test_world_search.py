"""Plans reach the goal, need every action of theirs, and are the same each time."""

from typing import Any

import pytest
from pydantic import JsonValue
from test_shipped_rulebooks import world as shipped_world
from world_scripts import action_of, script_of, setting

from refinesynth.actions.matching import action_key
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement, Sight
from refinesynth.world import World, ground_actions, plan
from refinesynth.world.planner import Planner, possible_mistakes, remaining_plan
from refinesynth.world.solvability import check_solvability


def _played(world: World, state: JsonValue, actions: tuple[str, ...]) -> JsonValue:
    for action in actions:
        ruling = world.step(state, action)
        assert ruling.kind is None, (action, ruling)
        assert ruling.state is not state
        state = ruling.state
    return state


def _aiming_at(world: World, *goal: str) -> World:
    return World(script_of(*world.script.actions, goal=goal))


def test_what_is_left_of_a_known_solution_is_counted_from_wherever_one_is(house: tuple[World, JsonValue]) -> None:
    world, state = house
    solution = plan(world, state)
    assert solution is not None
    for done in range(len(solution) + 1):
        here = _played(world, state, solution[:done])
        assert remaining_plan(world, here, solution) == solution[done:]
    assert remaining_plan(world, state, solution[:-1]) is None
    astray = world.step(_played(world, state, solution[:2]), "go to cabinet").state
    assert remaining_plan(world, astray, solution) == solution[2:]


def test_kinds_of_mistakes_are_those_that_what_is_known_allows(house: tuple[World, JsonValue]) -> None:
    world, state = house
    for known in ((), world.names, world.visible(state)):
        found = possible_mistakes(world, state, known)
        refused = {
            unmet.requirement.kind
            for text in ground_actions(world)
            if (read := world.read(text))
            and {*read[1].values()} <= {*known}
            and (unmet := read[0].first_unmet(state, read[1]))
        }
        assert found == refused | {MistakeKind.PARAMETER}
    every = {action_key(world.script, text) for text in ground_actions(world)}
    assert possible_mistakes(world, state, world.names, every) == {MistakeKind.PARAMETER}, "all were made before"


def test_a_requirement_without_an_answer_is_no_mistake_to_be_made() -> None:
    broken = Requirement(condition="state.missing.x == 1", hint="No.")
    world = World(script_of(ActionSpec(name="look", pattern="look", requires=(broken,)), goal=("true",)))
    assert possible_mistakes(world, {}, ()) == {MistakeKind.PARAMETER}


@pytest.mark.parametrize("name", ["services", "blocks", "village_fair"])
def test_the_same_question_has_the_same_plan_and_no_action_of_it_can_go(name: str) -> None:
    world = shipped_world(name)
    state: JsonValue = world.script.environment
    found = plan(world, state)
    assert found is not None
    assert 6 <= len(found) <= 12
    assert world.done(_played(world, state, found))
    assert plan(World(world.script), state) == found
    assert plan(world, state, candidates=list(ground_actions(world))) == found
    for at in range(len(found)):
        here = state
        for action in found[:at] + found[at + 1 :]:
            here = world.step(here, action).state
        assert not world.done(here) or _fails(world, state, found[:at] + found[at + 1 :])


def _fails(world: World, state: JsonValue, actions: tuple[str, ...]) -> bool:
    for action in actions:
        ruling = world.step(state, action)
        if ruling.kind is not None or ruling.state is state:
            return True
        state = ruling.state
    return False


@pytest.mark.parametrize(
    "goal",
    [
        "state.items.exists(i, state.items[i].place == 'fridge' && state.items[i].clean)",
        "state.items.filter(i, state.items[i].place == 'desk').size() == 3",
        "state.places.all(p, state.places[p].open)",
        "state.items.pen.place == 'fridge' || state.items.pen.clean",
        "!(state.items.cup.place in ['kitchen', 'player'])",
        "size(state.player.holding) == 1 && state.player.place == 'hall'",
        "state.items.cup.place == state.items.plate.place",
    ],
)
def test_goals_of_many_forms_are_reached(house: tuple[World, JsonValue], goal: str) -> None:
    world, state = _aiming_at(house[0], goal), house[1]
    wanted = ("go to", "open", "cup", "pen", "plate")
    found = plan(
        world, state, candidates=[text for text in ground_actions(world) if any(each in text for each in wanted)]
    )
    assert found
    assert world.done(_played(world, state, found))


def test_a_goal_that_is_reached_needs_nothing(house: tuple[World, JsonValue]) -> None:
    world, state = house
    assert plan(_aiming_at(world, "state.player.place == 'sofa'"), state) == ()
    assert plan(_aiming_at(world, "true"), state, candidates=()) == ()


@pytest.mark.parametrize("goal", ["false", "state.missing == 1", "state.items.cup.place == 'moon'", "state.hand == 1"])
def test_a_goal_out_of_reach_has_no_plan(house: tuple[World, JsonValue], goal: str) -> None:
    world, state = house
    assert plan(_aiming_at(world, goal), state, most=100) is None


def test_the_bound_on_states_is_kept(house: tuple[World, JsonValue]) -> None:
    world, state = house
    assert plan(world, state, most=3) is None
    assert plan(world, state, most=0) is None


def test_only_candidates_are_used_and_texts_that_are_no_action_are_left_out(house: tuple[World, JsonValue]) -> None:
    world, state = _aiming_at(house[0], "state.player.place == 'desk'"), house[1]
    assert plan(world, state, candidates=["dance", "go to DESK", "GO to desk", "go to moon"]) == ("GO to desk",)
    assert plan(world, state, candidates=["go to hall"]) is None


def test_a_state_that_is_no_json_has_no_plan(house: tuple[World, JsonValue]) -> None:
    assert plan(house[0], {"player": "\ud800"}) is None


def _counter(most: int) -> World:
    rules = (
        ActionSpec(
            name="press",
            pattern="press",
            requires=(Requirement(condition=f"state.n < {most}"),),
            effects=(Effect(op=EffectOp.ADD, path="/n", value=1),),
        ),
        ActionSpec(
            name="say {words}",
            pattern="say (.*)",
            effects=(Effect(op=EffectOp.SET, path="/said/deep", value="{words}"),),
        ),
    )
    return World(script_of(*rules, goal=("state.n * state.n == 36",)))


def test_counting_works_where_no_single_action_reaches_the_goal() -> None:
    assert plan(_counter(9), {"n": 0}) == ("press",) * 6
    assert plan(_counter(5), {"n": 0}) is None


def _jugs() -> World:
    """Four litres, of jugs that hold five and three: each action calculates what it pours."""

    def amount(jug: str) -> str:
        return f"state.jugs[{jug}]"

    fits = f"state.holds[into] - {amount('into')}"
    poured = f"{amount('jug')} < {fits} ? {amount('jug')} : {fits}"
    pour = (
        Effect(op=EffectOp.SET, path="/poured", value={"cel": poured}),
        Effect(op=EffectOp.ADD, path="/jugs/{into}", value={"cel": "state.poured"}),
        Effect(op=EffectOp.ADD, path="/jugs/{jug}", value={"cel": "-state.poured"}),
    )
    fill = Effect(op=EffectOp.SET, path="/jugs/{jug}", value="{state:/holds/{jug}}")
    empty = Effect(op=EffectOp.SET, path="/jugs/{jug}", value=0)
    jugs = ("large", "small")
    actions = (
        action_of("fill {jug}", fill, jug=jugs),
        action_of("empty {jug}", empty, jug=jugs),
        action_of("pour {jug} into {into}", *pour, needs=("jug != into",), jug=jugs, into=jugs),
    )
    environment: dict[str, Any] = {"holds": {"large": 5, "small": 3}, "jugs": {"large": 0, "small": 0}, "poured": 0}
    return World(script_of(*actions, goal=("state.jugs.large == 4",), environment=environment))


def test_what_is_calculated_is_planned_for() -> None:
    world = _jugs()
    found = plan(world, world.script.environment)
    assert found is not None
    assert len(found) == 6
    assert world.done(_played(world, world.script.environment, found))


def test_a_thing_is_fetched_from_wherever_it_is() -> None:
    take = Effect(op=EffectOp.MOVE, from_path="/rooms/{any}/things", path="/bag", value="{thing}")
    hide = Effect(op=EffectOp.MOVE, from_path="/rooms/{any}/things", path="/rooms/{room}/things", value="{thing}")
    rooms, things = ("hall", "attic"), ("pen", "cup")
    actions = (
        action_of("take {thing}", take, needs=("!(thing in state.bag)",), thing=things),
        action_of("hide {thing} in {room}", hide, needs=("!(thing in state.bag)",), thing=things, room=rooms),
    )
    environment: dict[str, Any] = {"rooms": {"hall": {"things": ["cup"]}, "attic": {"things": ["pen"]}}, "bag": []}
    goal = ("'cup' in state.rooms.attic.things", "'pen' in state.bag")
    world = World(script_of(*actions, goal=goal, environment=environment))
    found = plan(world, environment)
    assert found is not None
    assert sorted(found) == ["hide cup in attic", "take pen"]
    solvability = check_solvability(world.script)
    assert (len(solvability.shortest or ()), solvability.faults) == (2, ())


def test_an_action_with_a_free_parameter_is_not_listed_but_can_be_a_candidate() -> None:
    world = _counter(9)
    assert list(ground_actions(world)) == ["press"]
    # The second action cannot be carried out in this state; the search passes over it.
    assert plan(world, {"n": 5}, candidates=["say x", "press"]) == ("press",)


def _simple(name: str, path: str, when: str | None = None) -> ActionSpec:
    effect = Effect(op=EffectOp.SET, path=path, value=True, when=when)
    return ActionSpec(name=name, pattern=name, effects=(effect,))


def test_where_reasoning_backwards_leads_nowhere_all_actions_are_tried() -> None:
    # What the lamp needs stands in the effect's `when`, not in a requirement.
    rules = (
        _simple("light", "/lamp", when="state.oil && state.match"),
        _simple("break", "/no/such/place"),
        _simple("pour", "/oil"),
        _simple("strike", "/match"),
    )
    world = World(script_of(*rules, goal=("state.lamp",)))
    assert plan(world, {"lamp": False, "oil": False, "match": False}) == ("pour", "strike", "light")
    assert plan(world, {"lamp": False, "oil": False, "match": False}, most=2) is None


def test_ground_actions_are_every_filling_in_order(house: tuple[World, JsonValue]) -> None:
    texts = list(ground_actions(house[0]))
    assert len(texts) == 8 + 8 + 80 + 80 + 10
    assert texts[:3] == ["go to kitchen", "go to sink", "go to fridge"]
    assert len(set(texts)) == len(texts)
    assert all(house[0].read(text) for text in texts)


@pytest.mark.parametrize("sight", [Sight(path="{each}", each="/near"), Sight(path="b", when="state.near[0] == 'b'")])
def test_reasoning_backwards_brings_a_name_into_sight(sight: Sight) -> None:
    """Each of many switches does something, one of them brings the lamp into sight."""
    switches = tuple("abcdefgh")
    press = action_of("press {s}", setting("/near/0", "{s}"), setting("/on/{s}", value=True), s=switches)
    take = action_of("take {s}", setting("/taken", "{s}"), needs=("s in visible",), s=switches)
    script = script_of(
        press,
        take,
        goal=("state.taken == 'b'",),
        sights=(sight,),
        environment={"near": ["a"], "on": dict.fromkeys(switches, False), "taken": None},
    )
    planner = Planner(World(script), ground_actions(World(script)))
    found = planner.find(script.environment, 4, try_all=False)
    assert found is not None
    assert [action.text for action in found] == ["press b", "take b"]


def test_the_end_of_a_solution_that_fails_as_a_whole_is_found() -> None:
    up = action_of("up", setting("/n", {"cel": "state.n + 1"}), needs=("!state.locked",))
    lock = action_of("lock", setting("/locked", value=True))
    world = World(script_of(up, lock, goal=("state.n == 5",)))
    state: JsonValue = {"n": 0, "locked": False}
    assert remaining_plan(world, state, ["up"] * 5) == ("up",) * 5
    assert remaining_plan(world, state, ["lock", *["up"] * 5]) == ("up",) * 5
    assert remaining_plan(world, state, ["lock", *["up"] * 4]) is None
