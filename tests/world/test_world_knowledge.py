"""Record of what the player has read, and prices of mistakes: the executor, the rules and the draw of mistakes agree."""

from typing import Any

import pytest
from world_scripts import action_of, script_of, setting

from refinesynth.episode.ruled_action import bounded
from refinesynth.rules.observation_words import judge_words
from refinesynth.rules.repairs import NoRepeatedMistake, repairs
from refinesynth.trajectory import (
    ActionSpec,
    ConditionalText,
    Draft,
    DungeonMasterTurn,
    Effect,
    EffectOp,
    Knowledge,
    MistakeKind,
    PlayerTurn,
    Requirement,
    Sight,
)
from refinesynth.world import RulebookError, World, replay
from refinesynth.world.planner import possible_mistakes

KNOWS = Knowledge(path="/you/knows", texts=("4711", "map"))


def _reading(*reveals: tuple[str | None, str], name: str = "look") -> World:
    texts = tuple(ConditionalText(when=when, text=text) for when, text in reveals)
    spec = action_of(name).model_copy(update={"reveals": texts})
    return World(script_of(spec, knows=KNOWS, environment={"you": {"knows": []}}))


def _knows(state: Any) -> list[str]:
    return state["you"]["knows"]


@pytest.mark.parametrize(
    ("when", "shown", "learned"),
    [("'4711' in state.you.knows", "A note says 4711.", ["4711"]), ("size(state.you.knows) == 1", "A map.", ["map"])],
)
def test_what_is_learned_is_what_is_shown(when: str, shown: str, learned: list[str]) -> None:
    """The text is chosen before the player has read it."""
    world = _reading((when, "Nothing new there."), (None, shown))
    first = world.step(world.script.environment, "look")
    assert (first.text, _knows(first.state)) == (shown, learned)
    assert world.step(first.state, "look").text == "Nothing new there."


@pytest.mark.parametrize(("size", "learned"), [(100, ["4711"]), (3_990, [])])
def test_a_text_beyond_what_is_shown_is_neither_read_nor_demanded(size: int, learned: list[str]) -> None:
    look = action_of("look", reveals="{state:/log} The end says 4711.")
    world = World(script_of(look, knows=KNOWS, environment={"you": {"knows": []}, "log": "." * size}))
    ruling = world.step(world.script.environment, "look")
    assert _knows(ruling.state) == learned
    assert ("4711" in bounded(ruling.text)) == bool(learned)
    assert judge_words(world, ruling, (), bounded(ruling.text), action="look") == []


def test_a_text_that_comes_in_sight_by_reading_is_read_too() -> None:
    sights = (Sight(path="/tag", when="'4711' in state.known"), Sight(path="/end", when="'map' in state.known"))
    knows = Knowledge(path="/known", texts=("4711", "map", "end"))
    look = action_of("look", reveals="A note says 4711.")
    world = World(script_of(look, sights=sights, knows=knows, environment={"known": [], "tag": "map", "end": "end"}))
    ruling = world.step(world.script.environment, "look")
    assert ruling.text == "A note says 4711. In sight: map and end."
    assert ruling.state == {"known": ["4711", "map", "end"], "tag": "map", "end": "end"}


@pytest.mark.parametrize("said", ["4711", "x 4711", "4711, please"])
def test_a_guess_teaches_nothing(said: str) -> None:
    world = _reading((None, "You say: {words}."), name="say {words}")
    assert _knows(world.step(world.script.environment, f"say {said}").state) == []


def test_a_blank_text_cannot_be_read() -> None:
    with pytest.raises(RulebookError, match="blank"):
        World(script_of(action_of("look"), knows=Knowledge(path="/knows", texts=(" ",)), environment={"knows": []}))


def test_words_for_a_ruling_hold_what_is_read() -> None:
    world = _reading((None, "The note says 4711."))
    ruling = world.step(world.script.environment, "look")
    left_out = judge_words(world, ruling, (), "You read the note; the code is on it.", action="look")
    assert [one for one in left_out if "4711" in one]
    assert judge_words(world, ruling, (), "On the note you read 4711.", action="look") == []


def test_a_parameter_cannot_stand_in_for_the_state_before_each_step() -> None:
    counted = Effect.model_validate({"op": "set", "path": "/last", "value": {"cel": "before.n"}})
    with pytest.raises(RulebookError, match="each_step asks for; rename"):
        World(script_of(action_of("go {before}", before=("a",)), each_step=(counted,), environment={"n": 0, "last": 0}))


def test_what_can_be_seen_is_not_asked_for_each_of_many() -> None:
    each = Effect.model_validate(
        {"op": "set", "path": "/on/{each}", "value": True, "each": "/on", "when": "'a' in visible"}
    )
    with pytest.raises(RulebookError, match="visible"):
        World(script_of(action_of("press", each), environment={"on": {"a": False}}))


def test_a_condition_for_each_of_many_is_bounded_on_a_large_state() -> None:
    heavy = " || ".join(["1 in state.a"] * 49)
    each = Effect.model_validate({"op": "add", "path": "/n", "value": 1, "each": "/of", "when": heavy})
    world = World(script_of(action_of("go", each), environment={"a": [0] * 100_000, "of": ["x"] * 8, "n": 0}))
    assert world.step(world.script.environment, "go").state is world.script.environment, "its condition has no answer"


def _dialling(*, tries: int, price: bool = True) -> World:
    """A safe that locks for good after so many wrong numbers."""
    less = Effect(op=EffectOp.ADD, path="/tries", value=-1)
    needs = (
        Requirement(condition="state.tries > 0", hint="It is locked."),
        Requirement(condition="number == '3'", hint="No.", effects=(less,) if price else ()),
    )
    dial = action_of("dial {number}", setting("/open", value=True), needs=needs, number=("1", "2", "3"))
    environment = {"tries": tries, "open": False}
    return World(script_of(dial, goal=("state.open",), solution=("dial 3",), environment=environment))


@pytest.mark.parametrize(("tries", "price", "offered"), [(1, True, False), (2, True, True), (1, False, True)])
def test_no_mistake_is_asked_for_whose_price_loses_the_goal(tries: int, price: bool, offered: bool) -> None:
    world = _dialling(tries=tries, price=price)
    found = possible_mistakes(world, world.script.environment, world.names, (), ("dial 3",))
    assert found == {MistakeKind.PARAMETER, *([MistakeKind.LOGIC] if offered else [])}


def _lids() -> World:
    """Each blow loosens the lid, and none but the sixth succeeds."""
    more = Effect(op=EffectOp.ADD, path="/n", value=1)
    hit = Requirement(condition="state.n > 5", hint="It holds.", effects=(more,))
    specs: tuple[ActionSpec, ...] = (
        action_of("open lid", setting("/open", value=True), needs=("state.n > 0",)),
        action_of("hit lid", needs=(hit,)),
        action_of("sing", Effect(op=EffectOp.ADD, path="/songs", value=1)),
    )
    return World(script_of(*specs, goal=("state.open",), environment={"n": 0, "open": False, "songs": 0}))


def _played(world: World, *actions: str) -> Draft:
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    for action, ruling in zip(actions, replay(world, actions), strict=True):
        answer = DungeonMasterTurn.of_kind(ruling.kind, thought="t", observation=ruling.text)
        turns += [PlayerTurn(thought="t", action=action), answer]
    return Draft(script=world.script, turns=tuple(turns))


def test_a_refused_action_repairs_nothing_whatever_its_price() -> None:
    draft = _played(_lids(), "open lid", "hit lid", "sing", "open lid")
    first, second = repairs(draft)
    assert first.answer in {4, 6}, "an accepted action"
    assert second.answer is None


def test_an_action_may_be_tried_again_after_a_price_was_paid() -> None:
    assert [*NoRepeatedMistake()(_played(_lids(), "open lid", "hit lid", "open lid"))] == []
    assert [*NoRepeatedMistake()(_played(_lids(), "open lid", "open lid"))] != []
