"""Looking around: answers in a state are those of its conditions, and what is called out of reach is."""

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from world_scripts import action_of, script_of, setting

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
from refinesynth.world import World, ground_actions
from refinesynth.world.explore import Explorer, Node
from refinesynth.world.expression import WorkLimit, WorkLimitExceeded, json_bytes
from refinesynth.world.planner import Planner

NAMES = ("a", "b")
NUMBERED = ["/at", "/bag", "/box/{p}", "/box/{state:/at}", "/box/{p}/in", "/n", "/bag/0", "/box"]
places = st.sampled_from(NUMBERED)
each_places = st.sampled_from([*NUMBERED, "/box/{each}", "/box/{each}/in"]).map(
    lambda path: path.replace("{p}", "{each}")
)
conditions = st.sampled_from(
    [
        "true",
        "state.at == p",
        "p in state.bag",
        "!(p in state.bag)",
        "p in state.box",
        "'a' in state.box && !('b' in state.box)",
        "state.box[p]['in'] == state.at",
        "has(state.box.a)",
        "size(state.bag) < 2",
        "state.bag[0] == p",
        "state.n < 2",
        "p in visible",
        "!(p in visible)",
        "visible.exists(v, v == 'b')",
    ]
)
back = st.sampled_from(
    ["before.n < state.n", "p in before.bag", "before.at == state.at", "before.box.exists(x, !(x in state.box))"]
)
for_each = st.sampled_from(["each == 'a'", "each in state.bag", "has(state.box.a) && each in before.box"])
values: st.SearchStrategy[JsonValue] = st.sampled_from(
    [
        "{p}",
        "a",
        "{state:/at}",
        1,
        {"in": "{p}"},
        True,
        {"cel": "state.n + 1"},
        {"cel": "before.n"},
        {"cel": "state.bag.sum(x, size(x))"},
        {"cel": "state.box.sum(x, x in state.bag ? 1 : 2)"},
        {"in": {"cel": "p in visible ? 'a' : state.at"}},
        {"cel": "!(p in before.box)"},
    ]
)
sights = st.sampled_from(
    [
        Sight(path="/at"),
        Sight(path="/bag"),
        Sight(path="/box/{state:/at}"),
        Sight(path="/box/{each}/in", each="/box", when="each == state.at"),
        Sight(path="b", when="has(state.box.a)"),
        Sight(path="{each}", each="/box", when="state.n > 0"),
    ]
)


@st.composite
def effects(draw: st.DrawFn, *, bare: bool = False) -> Effect:
    """One effect; a bare one has no parameter."""
    op = draw(st.sampled_from(EffectOp))
    each = draw(st.none() | st.sampled_from(["/box", "/bag"]))
    where, condition, some = places, conditions | back, values
    if each is not None:
        where, condition = each_places, (condition | for_each).filter(_is_for_each)
        some = values.filter(_is_for_each)
    value = draw(some if op in {EffectOp.SET, EffectOp.ADD} else st.none() | some)
    taken = where
    if value is not None:
        taken |= st.sampled_from(["/{any}", "/box/{any}/in"])
    made = Effect(
        op=op,
        path=draw(taken if op is EffectOp.REMOVE else where),
        value=value,
        from_path=draw(taken) if op is EffectOp.MOVE else None,
        when=draw(st.none() | condition),
        each=each,
    )
    return Effect.model_validate_json(_without_parameter(made.model_dump_json())) if bare else made


def _is_for_each(drawn: JsonValue) -> bool:
    return "visible" not in str(drawn)


def _without_parameter(text: str) -> str:
    """The same with a name instead of a parameter."""
    return re.sub(r"\bp\b(?! in\b)", "state.at", text.replace("{p}", "b")).replace("p in", "'a' in")


@st.composite
def changes(draw: st.DrawFn, *, bare: bool = False) -> list[Effect]:
    """Effects of which some are made where the one before is not."""
    made = draw(st.lists(effects(bare=bare), min_size=0 if bare else 1, max_size=2))
    for at, effect in enumerate(made):
        if effect.when is not None and effect.each is None and draw(st.booleans()):
            return [*made[: at + 1], draw(effects(bare=bare)).model_copy(update={"when": "else"}), *made[at + 1 :]]
    return made


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    costs = draw(st.just([]) | changes())
    kind = draw(st.sampled_from([MistakeKind.LOGIC, MistakeKind.PLACE]))
    return Requirement(condition=draw(conditions), kind=kind, effects=tuple(costs))


def _act(name: str, needs: list[Requirement], changes: list[Effect]) -> ActionSpec:
    return ActionSpec(
        name=f"{name} {{p}}",
        pattern=f"{name} (.+)",
        parameters={"p": NAMES},
        requires=tuple(needs),
        effects=tuple(changes),
        reveals=(
            ConditionalText(when="before.n < state.n || p in visible", text="{p}, {state:/n}, {state:/box}."),
            ConditionalText(text="{visible}, {state:/at}"),
        ),
    )


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    actions = [
        _act(name, draw(st.lists(requirements(), max_size=2)), draw(changes())) for name in ("do", "make", "try")
    ]
    goal = draw(
        st.sampled_from(
            ["'b' in state.bag", "state.at == 'b'", "has(state.box.b)", "state.n == 2", "!('a' in state.bag)"]
        )
    )
    invariants = draw(st.sampled_from([(), ("size(state) > 2",), ("state.n < 3", "size(state.bag) < 4")]))
    state = {"at": "a", "bag": draw(st.sampled_from([[], ["a"]])), "box": {"a": {"in": "b"}}, "n": 0}
    return script_of(
        *actions,
        goal=(goal,),
        sights=draw(st.lists(sights, max_size=2)),
        invariants=invariants,
        each_step=draw(changes(bare=True)),
        knows=draw(st.sampled_from([None, Knowledge(path="/bag", texts=("b", "2"))])),
        environment=state,
    )


def _explorer(world: World) -> tuple[Explorer, Node]:
    explorer = Explorer(Planner(world, ground_actions(world)))
    state: JsonValue = dict(world.script.environment)
    return explorer, explorer.node(state)


@given(scripts())
def test_what_an_explorer_finds_possible_is_what_the_executor_carries_out(script: Script) -> None:
    world = World(script)
    explorer, start = _explorer(world)
    around = explorer.breadth_first(start, 25)
    for node in around.nodes:
        found = {action.text: after.state for action, after in explorer.expand(node)}
        costs = set[bytes | None]()
        for text in ground_actions(world):
            ruling = world.step(node.state, text)
            changed = ruling.kind is None and ruling.state is not node.state
            assert (text in found) == changed, (text, ruling)
            assert not changed or found[text] == ruling.state
            if ruling.kind is not None:
                costs |= {json_bytes(ruling.state, sort=True)} if ruling.state is not node.state else set()
                assert not ruling.done or world.done(node.state)
        assert {json_bytes(after.state, sort=True) for after in explorer.mistakes(node)} == costs
        for after in explorer.mistakes(node):
            assert explorer.is_goal(after) == world.done(after.state)
        assert explorer.is_goal(node) == world.done(node.state)


@given(scripts())
def test_what_is_certainly_out_of_reach_is_not_reached(script: Script) -> None:
    world = World(script)
    explorer, start = _explorer(world)
    for node in explorer.breadth_first(start, 4).nodes:
        if explorer.is_goal_unreachable(node):
            assert explorer.breadth_first(node, 40).plan is None
            assert not any(explorer.is_goal(after) for after in _reached(explorer, node, 40))


def _reached(explorer: Explorer, start: Node, most: int) -> list[Node]:
    """States that are reached by right actions and by mistakes before the goal."""
    queue = [start]
    for node in islice(queue, most):  # which grows meanwhile
        if explorer.is_goal(node) and node is not start:
            continue
        after = (*(after for _, after in explorer.expand(node)), *explorer.mistakes(node))
        queue += [each for each in after if each not in queue]
    return queue


@given(scripts())
def test_all_states_are_seen_where_breadth_says_so(script: Script) -> None:
    explorer, start = _explorer(World(script))
    found = explorer.breadth_first(start, 25)
    if found.exhausted and not explorer.is_goal(start):
        beyond = {
            after
            for node in found.nodes
            for after in (*(after for _, after in explorer.expand(node)), *explorer.mistakes(node))
        }
        assert all(explorer.is_goal(node) for node in beyond.difference(found.nodes))


@given(scripts())
def test_the_way_that_breadth_finds_leads_to_the_goal(script: Script) -> None:
    world = World(script)
    explorer, start = _explorer(world)
    way = explorer.breadth_first(start, 30).plan
    if way is not None:
        nodes = explorer.follow(start, way)
        assert len(nodes) == len(way) + 1
        assert explorer.is_goal(nodes[-1])
        assert not any(explorer.is_goal(node) for node in nodes[:-1])


@given(scripts())
def test_work_is_counted_alike_each_time_and_a_lower_limit_stops_it(script: Script) -> None:
    world = World(script)

    def explore(most: float) -> float:
        with WorkLimit(most).applied() as limit:
            explorer, start = _explorer(world)
            explorer.is_goal_unreachable(explorer.breadth_first(start, 5).nodes[-1])
        return most - limit.remaining

    work = explore(10**9)
    assert explore(10**9) == work, "what is cached with the world costs the same"
    with pytest.raises(WorkLimitExceeded):
        explore(work - 1)


PAIRS = "state.a.all(x, state.a.all(y, x + y >= 0))"
FLIP = setting("/n/{p}", {"cel": "!state.n[p]"})
FILL = setting("/b", "{state:/a}")
SHORT = PAIRS.replace("state.a", "state.b")
PRICE = Requirement(condition="!state.n[p] && false", effects=(FLIP,))
GROW = setting("/d", {"was": "x" * 16_000})
COUNT = setting("/d", 1, when=f"{SHORT} && false")
TOLD = (ConditionalText(when=f"{PAIRS} && false", text="So."), ConditionalText(text="Not so."))


@pytest.mark.parametrize(
    "spec",
    [
        action_of("go {p}", FLIP).model_copy(update={"reveals": TOLD}),
        action_of("go {p}", FLIP, setting("/d", 1, when=f"{PAIRS} && false")),
        action_of("go {p}", FILL, COUNT, setting("/b", []), FLIP),
        action_of("go {p}", FILL, setting("/d", {"cel": f"{PAIRS} ? 1 : 0"}), FLIP),
        action_of("go {p}", Effect(op=EffectOp.SET, path="/d", value=1, each="/n", when=f"{PAIRS} && false"), FLIP),
        action_of("go {p}", FLIP, needs=(f"{PAIRS} || state.n[p]", PRICE)),
        action_of("go {p}", needs=(Requirement(condition="false", effects=(FILL, COUNT, FLIP)),)),
        action_of("go {p}", *[GROW] * 10, setting("/d", ""), FLIP),
    ],
)
def test_all_that_an_action_asks_and_changes_is_counted(spec: ActionSpec) -> None:
    spec = spec.model_copy(update={"parameters": {"p": tuple("0123")}})
    environment = {"a": [1] * 12, "b": [], "d": 0, "n": dict.fromkeys("0123", False)}
    with WorkLimit(10**9).applied() as limit:
        explorer, start = _explorer(World(script_of(spec, goal=("state.d == 2",), environment=environment)))
        assert len(_reached(explorer, start, 40)) >= 16
    assert 10**9 - limit.remaining > 1_000_000
