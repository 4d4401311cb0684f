"""The roles of grounded play against models that answer from a list: what goes out, what comes back, and what is not
believed."""

from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError
from samples import SHED_GROUNDED, dm, player
from scripted import PROMPTS, Scripted, as_json

from refinesynth.prompts import Prompts
from refinesynth.roles import DungeonMaster, RulebookWriter
from refinesynth.roles.script_writer import read_grounded
from refinesynth.trajectory import Knowledge, Persona, Script

PERSONA = Persona(text="a joiner")
WANTED: dict[str, JsonValue] = {"features": ["hidden"], "actions": [3, 5]}
JSON: Any = SHED_GROUNDED.model_dump(mode="json")


def changed(**parts: Any) -> dict[str, Any]:
    return {**JSON, **parts}


class TestRulebookWriter:
    async def test_it_is_told_what_is_wanted_and_sees_grounded_examples(self) -> None:
        model = Scripted([SHED_GROUNDED.model_dump_json()])
        assert await RulebookWriter(model.model, PROMPTS, wanted=WANTED).write(PERSONA) == SHED_GROUNDED
        (asked,) = model.asked
        assert asked.blocks == {"persona": "a joiner", "wanted": {"step": "all", **WANTED}}
        assert asked.instructions == PROMPTS.fill("rulebook_writer", "instructions", examples=[SHED_GROUNDED])
        assert '"rulebook":{' in str(asked.instructions)

    async def test_a_script_without_a_rulebook_goes_back(self) -> None:
        model = Scripted([SHED_GROUNDED.imagined().model_dump_json(), SHED_GROUNDED.model_dump_json()])
        assert await RulebookWriter(model.model, PROMPTS, wanted=WANTED).write(PERSONA) == SHED_GROUNDED
        assert "rulebook: Field required" in model.asked[1].chat[-1][1]

    async def test_laws_of_given_actions_that_are_no_object_go_back(self) -> None:
        right = SHED_GROUNDED.model_dump_json()
        model = Scripted([as_json(changed(actions=[*JSON["actions"], "look: no laws"])), right])
        script = await RulebookWriter(model.model, PROMPTS, tools=SHED_GROUNDED.actions[:1]).write(PERSONA)
        assert script.actions == SHED_GROUNDED.actions[:1]
        assert f"actions.{len(JSON['actions'])}.name: Field required" in model.asked[1].chat[-1][1]


class TestSchemas:
    """A schema names what the value has, in the value's order: what a model writes by it is what is read."""

    def test_the_examples_fit_their_schema(self) -> None:
        """The shipped ones too: what is shown is of the form that is asked for."""
        for script in (SHED_GROUNDED, *Prompts().examples.grounded):
            assert script.rulebook is not None
            assert read_grounded(script.model_dump(mode="json")) == script


class TestReading:
    def test_slips_of_form_are_mended(self) -> None:
        answer = changed(
            extra="dropped",
            actions=[
                {
                    **JSON["actions"][0],
                    "requires": ["thing in visible", {"condition": "true", "kind": "Logic_Error", "hint": None}],
                    "effects": {
                        "op": "SET",
                        "path": "/things/{thing}/open",
                        "value": True,
                        "when": "",
                        "from_path": "",
                    },
                    "reveals": None,
                },
                {
                    **JSON["actions"][1],
                    "effects": [{"op": "Append", "path": "/player/holding", "value": "{thing}", "why": "dropped"}],
                },
            ],
            rulebook={
                "goal": "true",
                "sights": ["/things", {"path": "/player/holding", "each": "", "when": None}],
                "invariants": "true",
                "solution": [{"action": "open box"}, "take key"],
            },
        )
        script = read_grounded(answer)
        first, second = script.actions
        assert [(r.condition, r.kind, r.hint) for r in first.requires] == [
            ("thing in visible", "logic", "Nothing happens."),
            ("true", "logic", "Nothing happens."),
        ]
        assert (first.effects[0].op, first.effects[0].when, first.effects[0].from_path) == ("set", None, None)
        assert first.reveals == ""
        assert second.effects[0].op == "add"
        assert script.rulebook is not None
        assert script.rulebook.goal == ("true",)
        assert [sight.path for sight in script.rulebook.sights] == ["/things", "/player/holding"]
        assert script.rulebook.solution == ("open box", "take key")

    def test_slips_in_what_is_rarely_used_are_mended(self) -> None:
        cost = {"op": "REPLACE", "path": "/tries", "value": 1, "each": ""}
        first: dict[str, Any] = {
            **JSON["actions"][0],
            "requires": [{"condition": "true", "effects": cost}, {"condition": "true", "effects": []}],
            "reveals": [{"when": "true", "text": "It opens.", "why": "dropped"}, "It does not."],
        }
        second = {**JSON["actions"][1], "reveals": {"text": "You have it.", "when": ""}}
        rulebook: dict[str, Any] = {
            **JSON["rulebook"],
            "knows": {"path": "/player/knows", "texts": []},
            "each_step": cost,
        }
        script = read_grounded(changed(actions=[first, second], rulebook=rulebook))
        assert [text.model_dump() for text in cast("Any", script.actions[0].reveals)] == [
            {"when": "true", "text": "It opens."},
            {"text": "It does not."},
        ]
        assert [text.model_dump() for text in cast("Any", script.actions[1].reveals)] == [{"text": "You have it."}]
        assert script.rulebook is not None
        assert script.rulebook.knows is None
        effects = [*script.actions[0].requires[0].effects, *script.rulebook.each_step]
        assert [(effect.op, effect.each) for effect in effects] == [("set", None)] * 2
        assert script.actions[0].requires[1].effects == ()
        rulebook["knows"] = {"path": "/player/knows", "texts": ["key"]}
        again = read_grounded(changed(rulebook=rulebook))
        assert again.rulebook is not None
        assert again.rulebook.knows == Knowledge(path="/player/knows", texts=("key",))

    @pytest.mark.parametrize("when", [False, 0, [], {}])
    def test_a_condition_that_is_no_text_is_not_left_out(self, when: object) -> None:
        effect = {"op": "set", "path": "/tries", "value": 1, "when": when}
        with pytest.raises(ValidationError, match="when"):
            read_grounded(changed(actions=[{**JSON["actions"][0], "effects": [effect]}, *JSON["actions"][1:]]))

    def test_actions_by_name_are_read_too(self) -> None:
        by_name = {action["name"]: {**action, "name": action["name"]} for action in JSON["actions"]}
        assert read_grounded(changed(actions=by_name)) == SHED_GROUNDED

    @settings(max_examples=60)
    @given(data=st.data())
    def test_any_answer_is_read_or_refused_in_words(self, data: st.DataObject) -> None:
        anything = st.recursive(
            st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
            max_leaves=12,
        )
        part = data.draw(st.sampled_from(("actions", "rulebook", "environment", "goal", "completion_conditions")))
        answer = changed(**{part: data.draw(anything)})
        with suppress(ValueError, TypeError):  # which `ask` puts into words
            assert isinstance(read_grounded(answer), Script)


NAMES = ("name", "pattern", "requires", "effects", "reveals", "condition", "op", "path", "goal", "sights", "solution")


class TestWording:
    RULING: dict[str, JsonValue] = {"accepted": True, "text": "You hold the key.", "done": False}  # noqa: RUF012
    TURNS = (player("open window"), dm("There is no window here.", "place", thought="No such thing."))

    async def test_it_sees_the_ruling_and_of_the_script_what_the_player_sees(self) -> None:
        model = Scripted([as_json({"thought": "t", "observation": " You hold the key. "})])
        words = await DungeonMaster(model.model, PROMPTS).word(
            SHED_GROUNDED, self.TURNS, "take key", self.RULING, violations=["Leave <it> out."]
        )
        assert words == ("t", "You hold the key.")
        (asked,) = model.asked
        assert asked.blocks == {
            "script": {
                "introduction": SHED_GROUNDED.introduction,
                "goal": SHED_GROUNDED.goal,
                "actions": [action.name for action in SHED_GROUNDED.actions],
            },
            "history": [{"action": "open window", "observation": "There is no window here.", "mistake": "place"}],
            "action": "take key",
            "ruling": self.RULING,
            "violations": ["Leave <it> out."],
        }
        sent = asked.chat[-1][1]
        assert "That should help." not in sent, "who reads intentions judges too kindly"
        assert "environment" not in sent
        assert asked.instructions == PROMPTS.fill("grounded_master", "instructions")


async def test_a_dungeon_master_that_imagines_cannot_set_what_only_a_world_can() -> None:
    answer = {**dm("You hold it.").model_dump(mode="json"), "progress": 1.0, "transient": True}
    turn = await DungeonMaster(Scripted([as_json(answer)]).model, PROMPTS).narrate(SHED_GROUNDED, (), "take key")
    assert (turn.progress, turn.transient) == (None, False)
