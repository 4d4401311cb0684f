"""The check of solvability finds what is wrong with a world, how it is won, and how hard it is; the same each time."""

from collections.abc import Sequence

import pytest
from samples import with_rulebook
from world_scripts import action_of, script_of, setting

from refinesynth.actions.functions import actions_of
from refinesynth.actions.matching import nearest_action
from refinesynth.rehearsal.search_plan import hidden_names
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, Invariant, MistakeKind, Requirement, Script, Sight
from refinesynth.world import Solvability, World, check_solvability, ground_actions, plan
from refinesynth.world import solvability as checking
from refinesynth.world.planner import possible_mistakes

ROOMS = ("hall", "attic", "cellar")
GO = action_of("go to {room}", setting("/at", "{room}"), needs=("state.at != room",), room=ROOMS)
LIGHT = action_of(
    "light lamp", setting("/lit", value=True), needs=("state.at == 'attic'", "!state.lit", "!state.broken")
)
DROP = action_of("drop lamp", setting("/broken", value=True), needs=("!state.broken",))
STATE = {"at": "hall", "lit": False, "broken": False}
GOAL = ("state.lit", "state.at == 'cellar'")
SOLUTION = ("go to attic", "light lamp", "go to cellar")


def _script(
    *actions: ActionSpec, solution: Sequence[str] = SOLUTION, goal: Sequence[str] = GOAL, **more: object
) -> Script:
    return with_rulebook(script_of(*actions, goal=goal, solution=solution, environment=dict(STATE)), **more)


def test_a_sound_world_has_no_faults_and_its_difficulty_is_measured() -> None:
    found = check_solvability(_script(GO, LIGHT))
    assert (found.problem, found.solution_problem, found.unusable, found.faults) == (None, None, (), ())
    assert (found.shortest, found.exhausted, found.met_at_start) == (SOLUTION, True, False)
    assert found.difficulty is not None
    assert (found.difficulty.steps, found.difficulty.hidden, found.difficulty.losable) == (3, 0, False)
    assert found.difficulty.preconditions == 3
    assert found.difficulty.distractors == pytest.approx(1 / 3, abs=0.001)
    assert found.difficulty.branching == pytest.approx((2 + 3 + 2) / 3, abs=0.01)


def test_a_single_action_that_spoils_everything_is_found() -> None:
    found = check_solvability(_script(GO, LIGHT, DROP))
    assert found.difficulty is not None
    assert found.difficulty.losable is True
    # What is broken after it was lit does no harm.
    harmless = check_solvability(
        _script(GO, LIGHT, DROP.model_copy(update={"requires": (Requirement(condition="state.lit && !state.broken"),)}))
    )
    assert harmless.difficulty is not None
    assert harmless.difficulty.losable is False


@pytest.mark.parametrize("schema", [{"type": "string", "enum": ["slow"]}, {"type": "boolean"}])
def test_an_optional_argument_may_be_left_out_in_a_search(schema: dict[str, object]) -> None:
    function = {"name": "open", "parameters": {"type": "object", "properties": {"mode": schema}}}
    (given,) = actions_of([function])
    law = {"requires": (Requirement(condition="mode == ''"),), "effects": (setting("/lit", value=True),)}
    script = _script(given.model_copy(update=law), goal=("state.lit",), solution=())
    found, world = check_solvability(script), World(script)
    assert (found.shortest, found.exhausted, found.unusable) == (("open mode=",), True, ())
    assert plan(world, script.environment) == ("open mode=",) == (nearest_action(script, "opens mode="),)
    (closed,) = actions_of([function])
    law["requires"] = (Requirement(condition="mode != ''", kind=MistakeKind.PLACE),)
    world = World(_script(closed.model_copy(update=law), goal=("state.lit",)))
    assert MistakeKind.PLACE in possible_mistakes(world, script.environment, ())
    assert "open mode=" in ground_actions(world)


def test_a_longer_solution_is_shortened_and_a_missing_one_is_found() -> None:
    long = ("go to cellar", "go to hall", "go to attic", "light lamp", "go to hall", "go to cellar")
    assert check_solvability(_script(GO, LIGHT, solution=long)).shortest == SOLUTION
    without = check_solvability(_script(GO, LIGHT, solution=()))
    assert without.shortest == SOLUTION
    assert "has no solution" in (without.solution_problem or "")


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        (
            ("go to attic", "go to cellar"),
            "after all 2 actions of the solution, these conditions of the goal do not hold: 1",
        ),
        (("light lamp",), "action 1 of the solution, 'light lamp', cannot be carried out there: Nothing happens."),
        (("go to attic", "dance"), "action 2 of the solution, 'dance', cannot be carried out there: "),
    ],
)
def test_what_is_wrong_with_a_solution_is_said(solution: Sequence[str], expected: str) -> None:
    found = check_solvability(_script(GO, LIGHT, solution=solution))
    assert (found.solution_problem or "").startswith(expected)
    assert found.shortest == SOLUTION


def test_a_goal_that_is_met_already_and_one_out_of_reach() -> None:
    met = check_solvability(_script(GO, LIGHT, goal=("state.at == 'hall'",), solution=()))
    assert (met.met_at_start, met.shortest) == (True, ())
    assert met.unusable == (), "nothing was tried"
    never = check_solvability(_script(GO, LIGHT, goal=("state.lit && state.broken",)))
    assert (never.shortest, never.exhausted, never.difficulty) == (None, True, None)


def test_an_action_that_is_never_possible_is_found() -> None:
    fly = action_of("fly to {room}", setting("/at", "{room}"), needs=("state.at == 'moon'",), room=ROOMS)
    assert check_solvability(_script(GO, LIGHT, fly)).unusable == ("fly to {room}",)


def test_nothing_is_proved_of_an_action_with_an_open_value() -> None:
    say = action_of("say {words}", setting("/lit", value=True, when="words == 'light'"), needs=("state.at == 'moon'",))
    found = check_solvability(_script(GO, LIGHT, say))
    assert (found.exhausted, found.unusable) == (False, ())


def test_what_no_state_near_the_beginning_allows_is_not_called_impossible() -> None:
    # Sixty steps away, so that no search comes there; and what nothing brings about.
    far = action_of("press", Effect(op=EffectOp.ADD, path="/presses", value=1))
    late = action_of("ring", setting("/rung", value=True), needs=("state.presses == 60",))
    never = action_of("fly", setting("/flown", value=True), needs=("has(state.wings)",))
    script = _script(GO, LIGHT, far, late, never)
    found = check_solvability(script.model_copy(update={"environment": {**script.environment, "presses": 0}}))
    assert found.unusable == ("fly",)


def test_what_the_solution_does_not_need_is_not_called_impossible() -> None:
    chain = [
        action_of(
            f"turn {at}",
            setting(f"/turned{at}", value=True),
            needs=(f"has(state.turned{at - 1})",) if at else ("!state.lit",),
        )
        for at in range(12)
    ]
    found = check_solvability(_script(GO, LIGHT, *chain))
    assert found.unusable == ()


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (action_of("press", setting("/no/such", 1)), "effect 1 of 'press' cannot be applied: there is nothing at /no"),
        (action_of("press", needs=("state.wired",)), "requirement 1 of 'press': there is no key 'wired'"),
        (
            action_of("press", setting("/lit", 1, when="state.wired")),
            "the condition of effect 1 of 'press' has no answer",
        ),
        (action_of("press", reveals="It says {state:/sign}."), "reveals of 'press' looks up what was never there"),
        (action_of("press", setting("/at", "moon")), "'press' would break invariant 1"),
    ],
)
def test_faults_say_where_they_are(action: ActionSpec, expected: str) -> None:
    found = check_solvability(_script(GO, LIGHT, action, invariants=(Invariant(condition="state.at != 'moon'"),)))
    assert any(expected in fault for fault in found.faults), found.faults


def test_faults_of_goal_invariants_and_sights_are_found() -> None:
    light = (Invariant(condition="state.lit", sentence="There is light."),)
    blind = (Sight(path="/at", when="1 / 0 == 1"),)
    told = " ".join(
        check_solvability(_script(GO, LIGHT, goal=("state.door.open",), invariants=light, sights=blind)).faults
    )
    assert "invariant 1 is broken at the beginning, There is light." in told
    assert "goal condition 1 has no answer" in told
    assert "the condition of sight 1 has no answer" in told


def test_a_rulebook_that_cannot_be_run_has_a_problem_and_no_more() -> None:
    assert check_solvability(_script(GO, goal=("state.",))).problem is not None
    assert check_solvability(_script(GO).imagined()) == Solvability(
        problem=check_solvability(_script(GO).imagined()).problem
    )
    large = _script(GO).model_copy(update={"environment": {"text": "x" * 300_000}})
    assert "larger than" in check_solvability(large).faults[0]


def test_hidden_things_are_counted() -> None:
    sights = (Sight(path="/at"), Sight(path="/here/{state:/at}"))
    take = action_of("take {thing}", setting("/held", "{thing}"), needs=("thing in visible",), thing=("pearl", "mat"))
    script = _script(GO, take, goal=("state.held == 'pearl'",), solution=("go to cellar", "take pearl"), sights=sights)
    script = script.model_copy(
        update={"environment": {"at": "hall", "held": "", "here": {"hall": ["mat"], "cellar": ["pearl"], "attic": []}}}
    )
    found = check_solvability(script)
    assert (found.solution_problem, found.faults) == (None, ())
    assert found.difficulty is not None
    # The pearl, and the room that nobody sees from another one.
    assert (found.difficulty.steps, found.difficulty.hidden) == (2, 2)


def test_more_actions_than_can_be_gone_through_are_surveyed_too() -> None:
    many = tuple(f"room {number}" for number in range(90))
    travel = action_of("fly from {a} over {b} to {c}", setting("/at", "{c}"), a=many, b=many, c=many)
    found = check_solvability(_script(GO, LIGHT, travel))
    assert (found.shortest, found.exhausted, found.unusable) == (SOLUTION, False, ())


def test_a_world_made_to_be_slow_is_surveyed_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_CHECKED_WORK", 3_000_000)
    slow = "state.all(a, state.all(b, true))"
    script = _script(GO, LIGHT, action_of("think {x}", setting("/x", "{x}"), needs=(slow,), x=ROOMS))
    script = script.model_copy(update={"environment": {**STATE, **{f"k{at}": at for at in range(60)}}})
    found = check_solvability(script)
    assert found.exhausted is False
    assert found.shortest in {None, SOLUTION}


def test_proofs_know_of_any_place_whatever_a_parameter_is_called() -> None:
    """An action's own `{any}` is its parameter; that of each step is every key."""
    blow = Effect(op=EffectOp.REMOVE, path="/places/{any}/things", value="smoke")
    script = script_of(
        action_of("wait {any}", any=("yard",)),
        action_of("finish", setting("/done", value=True), needs=("!('smoke' in state.places.hall.things)",)),
        goal=("state.done",),
        each_step=(blow,),
        environment={"places": {"hall": {"things": ["smoke"]}, "yard": {"things": []}}, "done": False},
    )
    assert check_solvability(script).shortest == ("wait yard", "finish")


def test_a_thing_that_is_in_two_places_is_taken_from_the_same_one_in_whatever_order_the_keys_stand() -> None:
    take = Effect(op=EffectOp.MOVE, from_path="/p/{any}", path="/hand", value="x")
    away = Effect(op=EffectOp.MOVE, from_path="/p/a", path="/aside")
    back = Effect(op=EffectOp.MOVE, from_path="/aside", path="/p/a")
    script = script_of(
        action_of("reorder", away, back, needs=("size(state.hand) == 0",)),
        action_of("take", take, needs=("size(state.hand) == 0",)),
        goal=("size(state.p.b) == 0",),
        environment={"p": {"a": ["x"], "b": ["x"]}, "hand": []},
    )
    world, state = World(script), script.environment
    assert check_solvability(script).shortest is None
    for action in ("reorder", "take"):
        state = world.step(state, action).state
    assert not world.done(state), "as was proved"


TAKE = action_of(
    "take {item}",
    Effect(op=EffectOp.MOVE, from_path="/rooms/{any}/things", path="/hands", value="{item}"),
    needs=(Requirement(condition="item in visible", kind=MistakeKind.PLACE),),
    item=("key", "spoon"),
)


def _rooms(first: str, second: str) -> Script:
    """Two rooms in a list, the second of which is locked."""
    return script_of(
        TAKE,
        action_of("open", setting("/open", value=True), needs=("'key' in state.hands",)),
        goal=("'spoon' in state.hands",),
        sights=(Sight(path=first), Sight(path=second, when="state.open")),
        environment={"rooms": [{"things": ["key"]}, {"things": ["spoon"]}], "hands": [], "open": False, "second": 1},
    )


@pytest.mark.parametrize("second", ["/rooms/1/things", "/rooms/{state:/second}/things"])
def test_what_is_seen_in_a_list_of_rooms_is_in_place_there(second: str) -> None:
    found = check_solvability(_rooms("/rooms/0/things", second))
    assert found.shortest == ("take key", "open", "take spoon")


def test_what_is_hidden_in_a_list_is_at_the_places_on_the_way_and_not_at_an_index() -> None:
    script = script_of(
        action_of("take {item}", item=("key", "chest", "0")),
        sights=(Sight(path="/chests/{state:/by}/0", when="false"),),
        environment={"chests": {"chest": [["key"]]}, "by": "chest"},
    )
    assert hidden_names(World(script)).places_of == {"key": {"chest"}}


@pytest.mark.parametrize(
    "leave", [Effect(op=EffectOp.REMOVE, path="/line/0"), Effect(op=EffectOp.MOVE, from_path="/line/0", path="/away")]
)
def test_those_who_stand_behind_in_a_line_move_up(leave: Effect) -> None:
    script = script_of(
        action_of("wave at cyd", setting("/g", "cyd"), needs=("'cyd' in visible",)),
        action_of("next", leave, needs=("size(state.line) > 1",)),
        action_of("win", setting("/g", "win"), needs=("size(state.line) == 1",)),
        goal=("state.g == 'win'",),
        sights=(Sight(path="/line/1"),),
        environment={"line": ["ann", "bob", "cyd"], "g": "", "away": ""},
    )
    found = check_solvability(script)
    assert (found.shortest, found.exhausted, found.unusable) == (("next", "next", "win"), True, ())
