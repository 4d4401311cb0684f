"""Rulebooks beyond single changes: sums, effects on each element, else, the state before, the price of
mistakes, words by state, and what was read."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from samples import with_rulebook
from world_scripts import action_of, documented, script_of, setting

from refinesynth.trajectory import (
    ActionSpec,
    ConditionalText,
    Effect,
    EffectOp,
    Knowledge,
    MistakeKind,
    Requirement,
    Script,
    Sight,
)
from refinesynth.world import RulebookError, World, check_solvability, plan, replay
from refinesynth.world.effects import MAX_EACH
from refinesynth.world.expression import compile_expression


def _change(**given: Any) -> Effect:
    return Effect.model_validate({"op": "set", **given})


def _after(state: Any, *effects: Effect, **values: str) -> Any:
    """The state after an action with these effects."""
    name = " ".join(("do", *(f"{{{name}}}" for name in values)))
    world = World(script_of(action_of(name, *effects), environment=state))
    ruling = world.step(state, " ".join(("do", *values.values())))
    assert ruling.problem is None, ruling.problem
    return ruling.state


def _problem(state: Any, *effects: Effect) -> str:
    """Reason why an action with these effects cannot be carried out."""
    ruling = World(script_of(action_of("do", *effects), environment=state)).step(state, "do")
    assert ruling.state is state
    return ruling.problem or ""


@given(st.lists(st.integers(-50, 50)), st.dictionaries(st.text(max_size=3), st.integers(-50, 50)))
def test_a_sum_is_that_of_the_numbers(numbers: list[int], prices: dict[str, int]) -> None:
    state: JsonValue = {"numbers": [*numbers], "prices": {**prices}, "doubles": [number / 2 for number in numbers]}
    assert compile_expression("state.numbers.sum(n, n)", set()).value(state, {}) == sum(numbers)
    assert compile_expression("state.prices.sum(n, state.prices[n])", set()).value(state, {}) == sum(prices.values())
    assert compile_expression("state.doubles.sum(n, n)", set()).value(state, {}) == sum(numbers) / 2


@pytest.mark.parametrize("source", ["state.texts.sum(t, t)", "state.mixed.sum(n, n)", "state.n.sum(x, 1)"])
def test_only_numbers_of_one_kind_have_a_sum(source: str) -> None:
    answer = compile_expression(f"{source} == 1", set()).answer({"texts": ["a"], "mixed": [1, 1.5], "n": 1}, {})
    assert isinstance(answer, str)
    with pytest.raises(RulebookError, match=r"sum is written x\.sum\(name, number with name\)"):
        compile_expression("state.texts.sum(t) == 1", set())


def test_an_effect_is_made_for_each_key_text_or_index() -> None:
    state = {"lamps": {"red": {"on": True}, "blue": {"on": False}}, "bag": ["red"], "rows": [[1, 2], [3]]}
    toggled = _after(state, _change(path="/lamps/{each}/on", value={"cel": "!state.lamps[each].on"}, each="/lamps"))
    assert [lamp["on"] for lamp in toggled["lamps"].values()] == [False, True]
    held = _after(state, _change(path="/lamps/{each}/held", value="{each} {p}", each="/bag"), p="x")
    assert held["lamps"] == {"red": {"on": True, "held": "red x"}, "blue": {"on": False}}
    longer = _after(state, _change(op="add", path="/rows/{each}", value=0, each="/rows", when="each != '0'"))
    assert longer["rows"] == [[1, 2], [3, 0]]


def test_what_an_effect_is_made_for_is_bounded_and_there() -> None:
    wide = {"all": {str(at): "x" * 500 for at in range(MAX_EACH)}, "copies": {}}
    grows = _change(path="/copies/{each}", value="{state:/all}", each="/all")
    assert "makes the state too deep or larger" in _problem(wide, grows)
    assert "more than 64, for each" in _problem(
        {"all": [""] * (MAX_EACH + 1)}, _change(path="/n", value=1, each="/all")
    )
    assert "/n is neither a list nor an object" in _problem({"n": 1}, _change(path="/n", value=1, each="/n"))
    assert "nothing at /missing" in _problem({}, _change(path="/n", value=1, each="/missing"))
    costly = "state.all.all(a, state.all.all(b, state.all.all(c, a != '' || b != c)))"
    state = {"all": ["x"] * 60, "n": 0}
    assert _after(state, _change(path="/n", value=1, each="/all", when=costly)) == state, "it has no answer"


def test_a_search_passes_over_an_effect_for_each_of_nothing() -> None:
    each = _change(path="/lamps/{each}", value=True, each="/lamps")
    world = World(script_of(action_of("do", each), goal=("state.lamps.a",), environment={"n": 1}))
    assert plan(world, {"n": 1}) is None
    assert plan(world, {"lamps": {"a": False}}) == ("do",)


def test_an_effect_is_made_where_the_one_before_it_is_not() -> None:
    effects = (
        _change(path="/lamp", value="on", when="state.lamp == 'off'"),
        _change(path="/lamp", value="off", when="else"),
        _change(op="add", path="/off", value=1, when="else"),
        _change(op="add", path="/n", value=1),
    )
    on = _after({"lamp": "off", "off": 0, "n": 0}, *effects)
    assert on == {"lamp": "on", "off": 0, "n": 1}
    assert _after(on, *effects) == {"lamp": "off", "off": 1, "n": 2}
    unanswered = (_change(path="/n", value=1, when="state.missing"), _change(path="/n", value=2, when="else"))
    assert _after({"n": 0}, *unanswered) == {"n": 2}


@pytest.mark.parametrize("before", [(), (_change(path="/n", value=1),), (_change(path="/n", when="true", each="/l"),)])
def test_there_is_no_else_without_a_condition(before: tuple[Effect, ...]) -> None:
    with pytest.raises(RulebookError, match="`when` is 'else', but the effect before it has no `when`, or has `each`"):
        World(script_of(action_of("do", *before, _change(path="/n", value=2, when="else"))))


def test_effects_see_the_state_before_the_action() -> None:
    swap = (
        _change(path="/a", value={"cel": "before.b"}),
        _change(path="/b", value={"cel": "before.a"}),
        _change(op="add", path="/n", value=1, when="before.a < before.b && state.a > state.b"),
    )
    assert _after({"a": 1, "b": 2, "n": 0}, *swap) == {"a": 2, "b": 1, "n": 1}
    assert _after({"n": 0}, _change(path="/n", value={"cel": "size(before)"}), before="x") == {"n": 1}, "a parameter's"
    with pytest.raises(RulebookError, match="'before' is not a variable here"):
        World(script_of(action_of("do", needs=("before.n == 1",))))


@given(
    st.sampled_from(["state.n > 1", "'a' in state.l", "state.l.exists(before, before == 'b')", "state.gone"]),
    st.integers(0, 3),
    st.lists(st.sampled_from("ab"), max_size=2),
)
def test_else_is_the_negation_of_what_held_before(condition: str, number: int, items: list[str]) -> None:
    state: Any = {"n": number, "l": items}
    then, other = _change(path="/n", value=9, when=condition), _change(op="add", path="/l", value="c", when="else")
    holds = compile_expression(condition, set()).answer(state, {}) is True
    expected = {**state, "n": 9} if holds else {**state, "l": [*items, "c"]}
    assert _after(state, then, other) == expected


def test_the_documented_effects_switch_lamps_and_pay() -> None:
    state = {
        "lamps": {"door": "on", "desk": "off", "bed": "on"},
        "beside": {"door": ["desk", "bed"]},
        "cash": 9,
        "crates": ["tea", "tea", "rum"],
        "fee": {"tea": 1, "rum": 3},
    }
    effects = [_change(**effect) for effect in documented("/lamps/")["effects"]]
    after = _after(state, *effects, lamp="door")
    assert (after["lamps"], after["cash"]) == ({"door": "off", "desk": "on", "bed": "off"}, 4)


def _lock(*costs: Effect, tries: int = 3) -> World:
    """A lock that jams for good after so many wrong tries; the note says which number is right."""
    wrong = Requirement(condition="number == state.lock.right", hint="It does not turn.", effects=costs)
    ways = action_of("take the back door", setting("/open", value=True), needs=("state.lock.left == 0 && state.key",))
    return World(
        script_of(
            action_of(
                "turn to {number}",
                setting("/open", value=True),
                needs=(Requirement(condition="state.lock.left > 0", hint="It is jammed."), wrong),
                number=("1", "2", "3"),
            ),
            ways,
            goal=("state.open",),
            sights=(Sight(path="/you"), Sight(path="1", when="state.lock.left < 2")),
            each_step=(Effect(op=EffectOp.ADD, path="/steps", value=1),),
            environment={"lock": {"left": tries, "right": "2"}, "open": False, "steps": 0, "key": False, "you": []},
        )
    )


_WEARS = Effect(op=EffectOp.ADD, path="/lock/left", value=-1)


def test_a_mistake_costs_what_its_requirement_says() -> None:
    world = _lock(_WEARS, tries=2)
    first, second, third = replay(world, ["turn to 1", "turn to 3", "turn to 2"])
    assert (first.kind, first.problem, first.text) == (MistakeKind.LOGIC, None, "It does not turn. In sight: 1.")
    assert (first.appeared, first.visible) == (("1",), ("1",))
    assert [(change.path, change.before, change.after) for change in first.changed] == [("/lock/left", 2, 1)]
    assert (second.text, cast("Any", second.state)["lock"]["left"], cast("Any", second.state)["steps"]) == (
        "It does not turn.",
        0,
        0,
    )
    assert (third.text, third.state is second.state, third.changed) == ("It is jammed.", True, ())
    assert replay(world, ["turn to 1"], {0})[0].state is world.script.environment
    written = world.script.actions[0].model_dump(mode="json")["requires"]
    assert ["effects" in requirement for requirement in written] == [False, True], "old ones are written as they were"


def test_mistakes_lose_the_goal_and_are_never_part_of_a_way_to_it() -> None:
    assert check_solvability(_lock(tries=1).script).difficulty == check_solvability(_lock(_WEARS).script).difficulty
    world = _lock(_WEARS, tries=1)
    found = check_solvability(world.script)
    assert (found.shortest, found.exhausted, found.faults) == (("turn to 2",), True, ())
    assert found.difficulty is not None
    assert found.difficulty.losable is True
    assert found.unusable == ("take the back door",)
    found = check_solvability(_lock(_WEARS, setting("/key", value=True), tries=1).script)
    assert found.unusable == (), "a mistake makes it possible"
    by_mistake = _lock(_WEARS, setting("/key", value=True), setting("/lock/right", value="none"), tries=1).script
    by_mistake = by_mistake.model_copy(
        update={"environment": {**by_mistake.environment, "lock": {"left": 1, "right": "0"}}}
    )
    found = check_solvability(by_mistake)
    assert (found.shortest, found.exhausted, found.unusable) == (None, True, ("turn to {number}",))
    assert plan(World(by_mistake), by_mistake.environment) is None


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        (setting("/open", value=True), "requirement 2 of 'turn to {number}': its effects would reach the goal"),
        (setting("/gone/left", 0), "effect 1 of requirement 2 of 'turn to {number}' cannot be applied"),
        (setting("/key", value=True, when="state.gone"), "the condition of effect 1 of requirement 2 of 'turn to"),
    ],
)
def test_a_mistake_neither_wins_nor_breaks(cost: Effect, problem: str) -> None:
    world = _lock(cost)
    ruling = world.step(world.script.environment, "turn to 1")
    assert (ruling.state is world.script.environment, ruling.done) == (True, False)
    assert ruling.problem is None if "condition" in problem else problem in (ruling.problem or "")
    (fault,) = check_solvability(world.script).faults
    assert problem in fault
    with pytest.raises(RulebookError, match=r"action 1, 'do': requirement 1: effect 1: '\{p\}' uses"):
        World(script_of(action_of("do", needs=(Requirement(condition="true", effects=(setting("/n", "{p}"),)),))))


def test_the_documented_safe_jams() -> None:
    needs = [Requirement.model_validate(one) for one in documented("/safe/tries")["requires"]]
    turn = action_of("turn to {number}", setting("/open", value=True), needs=needs)
    world = World(script_of(turn, environment={"safe": {"tries": 2, "number": "7"}, "open": False}))
    texts = [ruling.text for ruling in replay(world, ["turn to 1", "turn to 2", "turn to 7"])]
    assert texts == [*["It clicks, and does not open."] * 2, "The dial does not move any more."]


def test_the_documented_kettle_says_how_it_is() -> None:
    look = action_of("look").model_copy(update={"reveals": _conditional(documented("whistles")["reveals"])})
    heat = Effect(op=EffectOp.ADD, path="/kettle/heat", value=1, when="state.kettle.on && state.kettle.heat < 3")
    state = {"kettle": {"on": False, "heat": 0, "place": "stove"}}
    world = World(
        script_of(look, action_of("light", setting("/kettle/on", value=True)), each_step=(heat,), environment=state)
    )
    texts = [ruling.text for ruling in replay(world, ["look", "light", "look", "look", "look"])]
    louder = "The kettle hums louder."
    assert texts == ["The kettle stands on the stove, cold.", "Done.", louder, louder, "The kettle whistles."]


def _conditional(texts: list[Any]) -> tuple[ConditionalText, ...]:
    return tuple(ConditionalText.model_validate(text) for text in texts)


def test_observations_by_state_are_checked_and_written_as_they_were() -> None:
    def script(*texts: dict[str, str]) -> Script:
        look = action_of("look {p}").model_copy(update={"reveals": _conditional([*texts]), "parameters": {"p": ("a",)}})
        return script_of(look, goal=("false",), sights=(Sight(path="/near"),), environment={"near": ["a"]})

    unsure = script({"when": "state.gone", "text": "Never."}, {"when": "p in visible", "text": "{state:/lost}"}, {})
    ruling = World(unsure).step(unsure.environment, "look a")
    assert (ruling.text, ruling.kind) == ("nothing", None)
    assert check_solvability(unsure).faults == (
        "the condition of text 1 of reveals of 'look {p}' has no answer: there is no key 'gone' (tried: 'look a')",
        "reveals of 'look {p}' looks up what was never there; mend the pointer, or put it into the state",
    )
    for texts in ([{"when": "true", "text": "a"}], [{"text": "a"}, {"text": "b"}]):
        with pytest.raises(RulebookError, match="has no `when`"):
            World(script(*texts))
    assert Script.from_json(unsure.to_json()) == unsure
    assert action_of("look", reveals="Dust.").model_dump(mode="json")["reveals"] == "Dust."
    assert "reveals" not in action_of("look").model_dump(mode="json")


def _archive(*, knows: bool = True, introduction: str = "") -> Script:
    """A box with a number that stands on a card in a drawer."""
    needs = (Requirement(condition="number in state.you.knows", hint="Why {number}, and not any other?"),) * knows
    right = Requirement(condition="number == '4711'", kind=MistakeKind.PARAMETER, hint="{number} is not it.")
    script = script_of(
        action_of("open drawer", setting("/drawer", value=True), needs=("!state.drawer",)),
        action_of(
            "read {paper}", reveals="{state:/papers/{paper}}", needs=("paper in visible",), paper=("card", "bill")
        ),
        action_of("dial {number}", setting("/open", value=True), needs=(*needs, right), number=("4711", "1234")),
        action_of("say {number}", reveals="You say {number}.", number=("4711", "1234")),
        goal=("state.open",),
        sights=(Sight(path="bill"), Sight(path="card", when="state.drawer")),
        environment={
            "you": {"knows": []},
            "drawer": False,
            "open": False,
            "papers": {"card": "The box: 4711.", "bill": "Paid: 1234, of 47110."},
        },
        knows=Knowledge(path="/you/knows", texts=("4711", "1234")),
    )
    return script.model_copy(update={"introduction": introduction})


def test_only_what_was_read_is_known() -> None:
    world = World(_archive())
    actions = ["dial 4711", "say 4711", "open drawer", "read bill", "dial 1234", "read card", "dial 4711"]
    rulings = replay(world, actions)
    assert [ruling.kind for ruling in rulings] == [
        *(MistakeKind.LOGIC, None, None, None, MistakeKind.PARAMETER, None, None)
    ]
    known = [cast("Any", ruling.state)["you"]["knows"] for ruling in rulings]
    assert known == [[], [], [], ["1234"], ["1234"], ["4711", "1234"], ["4711", "1234"]]
    assert [change.path for change in rulings[3].changed] == ["/you/knows"]
    assert rulings[-1].done


def test_a_player_has_to_read_before_it_knows() -> None:
    assert check_solvability(_archive(knows=False)).shortest == ("dial 4711",)
    found = check_solvability(_archive())
    assert (found.shortest, found.exhausted, found.faults) == (("open drawer", "read card", "dial 4711"), True, ())
    assert found.difficulty is not None
    assert (found.difficulty.steps, found.difficulty.hidden) == (3, 1)
    assert plan(World(_archive()), _archive().environment) == found.shortest
    assert Script.from_json(_archive().to_json()) == _archive()
    assert "knows" not in script_of().model_dump(mode="json")["rulebook"]


@pytest.mark.parametrize(
    ("update", "fault"),
    [
        ({"introduction": "Somebody whispers: 4711."}, "the introduction tells what the player does not know"),
        ({"environment": {**_archive().environment, "you": {"knows": "all"}}}, "is no list at /you/knows"),
        ({"environment": {**_archive().environment, "you": {}}}, "there is nothing at /you/knows"),
    ],
)
def test_a_record_that_cannot_be_kept_is_a_fault(update: dict[str, Any], fault: str) -> None:
    faults = check_solvability(_archive().model_copy(update=update)).faults
    assert fault in faults[0]
    with pytest.raises(RulebookError, match=r"knows: .* begins with a slash"):
        World(script_of(knows=Knowledge(path="known", texts=("a",))))


def test_the_documented_record_is_kept() -> None:
    example = documented("/you/knows")
    script = with_rulebook(_archive(), knows=Knowledge.model_validate(example["rulebook"]["knows"]))
    (needs,) = example["requires"]
    assert check_solvability(script).shortest == ("open drawer", "read card", "dial 4711")
    assert Requirement.model_validate(needs).condition == script.actions[2].requires[0].condition


def test_the_documented_free_value_has_the_form_of_its_group() -> None:
    (book,) = (ActionSpec.model_validate(action) for action in documented("book {room}")["actions"])
    solution = ("book hall for 2031-05-01", "book hall for 2031-05-02")
    script = script_of(
        book,
        goal=("size(state.booked.hall) == 2",),
        solution=solution,
        environment={"booked": {"hall": [], "attic": []}},
    )
    actions = [
        "book hall for 2031-05-01",
        "book hall for 2031-05-01",
        "book hall for tomorrow",
        "book hall for 2031-50-50",
    ]
    kinds = [ruling.kind for ruling in replay(World(script), actions)]
    assert kinds == [None, MistakeKind.LOGIC, *[MistakeKind.PARAMETER] * 2]
    found = check_solvability(script)
    assert (found.shortest, found.exhausted) == (solution, False)
