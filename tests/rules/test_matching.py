"""Matching of untrusted patterns against untrusted actions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import GO, HOUSE, SAY, TAKE

from refinesynth.actions.matching import (
    MAX_ACTION_CHARACTERS,
    action_form,
    explain_mismatch,
    lenient_action,
    match_action,
    match_pattern,
)
from refinesynth.actions.patterns import MAX_PATTERN_CHARACTERS, PatternError, compile_pattern, to_utf8
from refinesynth.trajectory import ActionSpec, Script


def action(name: str, pattern: str, **parameters: tuple[str, ...]) -> ActionSpec:
    return ActionSpec(name=name, pattern=pattern, parameters=parameters)


NARROW, WIDE = action("go {way}", "go (.+)", way=("north",)), action("walk {way}", "(?:go|walk) (.+)", way=("south",))
ANN = action("call {who}", "call (.+)", who=(" Ann", "ANN"))
PUT = action("put {a} on {b}", "put (.+) on (.+)", b=("y",), a=("x",))
FROM = action("from {b} take {a}", "from (?P<b>.+) take (?P<a>.+)", a=("x",), b=("y",))
VAGUE, EXACT = action("{anything}", "(.+)", anything=()), action("look {way}", "look (.+)", way=())
LOUD = action("call {who}", "(?i)call (.+)", who=("Ann",))


class TestMatches:
    @pytest.mark.parametrize(
        ("text", "specs", "at", "values"),
        [
            ("go to hall", HOUSE.actions, 0, {"place": "hall"}),
            ("  go to hall \n", HOUSE.actions, 0, {"place": "hall"}),
            ("take mug  from  kitchen ", HOUSE.actions, 1, {"item": "mug", "place": "kitchen"}),
            ("say what you like, from anywhere", HOUSE.actions, 2, {"words": "what you like, from anywhere"}),
            ("look", HOUSE.actions, 3, {}),
            # Unnamed groups are in the order of the placeholders; named groups may come in any order.
            ("put x on y", (PUT,), 0, {"a": "x", "b": "y"}),
            ("from y take x", (FROM,), 0, {"a": "x", "b": "y"}),
            # Another action may take what the first refuses; the one named first in the text is preferred.
            ("go south", (NARROW, WIDE), 1, {"way": "south"}),
            ("look up", (VAGUE, EXACT), 1, {"way": "up"}),
            # Values are as the script spells them; a pattern that ignores case says so of its words alone.
            ("call Ann", (ANN,), 0, {"who": " Ann"}),
            ("call ANN ", (ANN,), 0, {"who": "ANN"}),
            ("CALL Ann", (LOUD,), 0, {"who": "Ann"}),
        ],
    )
    def test_whole_trimmed_text_with_allowed_values(
        self, text: str, specs: tuple[ActionSpec, ...], at: int, values: dict[str, str]
    ) -> None:
        found = match_action(specs, text)
        assert found is not None
        assert (found.action, found.values) == (specs[at], values)

    def test_anything_else_does_not(self) -> None:
        others = (
            "",
            "  ",
            "go to moon",
            "go to hall and look",
            "Look",
            "looks",
            "take mug",
            "go  to hall",
            "go to HALL",
        )
        for text in (*others, "take Mug from kitchen", "call ann"):
            assert match_action((*HOUSE.actions, ANN), text) is None, text
        assert match_action((LOUD,), "CALL ANN") is None

    @pytest.mark.parametrize(
        "spec",
        [
            action("go {a}", "go (.+) (.+)"),
            action("go {a} {b}", "go (.+)"),
            action("go {a}", "go .+"),
            action("go", "go (.+)"),
            action("go {a}", "go (?P<b>.+)"),
            action("go {a} {b}", "go (?P<a>.+) (.+)"),
            action("go {a} {a}", "go (.+) (.+)"),
            action("go {a}", "go (?=.)(.+)"),
        ],
    )
    def test_groups_that_do_not_fit_match_nothing(self, spec: ActionSpec) -> None:
        assert match_action((spec,), "go x y") is None
        assert action_form(spec).problem

    def test_a_group_that_took_no_part_gives_no_value(self) -> None:
        spec = action("look {way}", "look(?: (.+))?", way=())
        assert match_action((spec,), "look") is None
        assert match_action((spec,), "look up") is not None
        assert match_pattern(spec, "look") == {"way": None}
        assert "{way} is missing" in explain_mismatch((spec,), "look").message

    @given(st.data())
    def test_no_text_with_a_value_in_another_case_is_accepted(self, data: st.DataObject) -> None:
        spec = data.draw(st.sampled_from([GO, TAKE]))
        values = {name: data.draw(st.sampled_from(listed)) for name, listed in spec.parameters.items()}
        wrong = data.draw(st.sampled_from(sorted(values)))
        other = data.draw(st.sampled_from([values[wrong].upper(), values[wrong].title()]))
        text = spec.fill({**values, wrong: other})
        assert match_action(HOUSE.actions, spec.fill(values)) is not None
        assert match_action(HOUSE.actions, text) is None
        found = explain_mismatch(HOUSE.actions, text)
        assert found.code == "value_not_allowed"
        assert f'cannot be "{other}", only "{values[wrong]}": capital and small letters count' in found.message


class TestHostile:
    def test_nested_repetition_is_linear(self) -> None:
        spec = action("run", "^(?:a+)+$")
        captured = action("run {a}", "^(a+)+$", a=())
        assert match_action((spec,), "a" * 5_000) is not None
        assert match_action((spec, captured), "a" * 5_000 + "!") is None
        assert match_pattern(captured, "a" * 5_000) == {"a": "a" * 5_000}

    def test_longer_actions_are_not_read(self) -> None:
        anything = action("do {it}", "(?s)(.*)", it=())
        assert match_action((anything,), "a" * MAX_ACTION_CHARACTERS) is not None
        assert match_action((anything,), "a" * (MAX_ACTION_CHARACTERS + 1)) is None
        assert match_pattern(anything, "a" * (MAX_ACTION_CHARACTERS + 1)) is None
        assert explain_mismatch((anything,), "a" * (MAX_ACTION_CHARACTERS + 1)).code == "action_too_long"

    def test_longer_patterns_are_not_compiled(self) -> None:
        assert compile_pattern("a" * MAX_PATTERN_CHARACTERS).groups == 0
        with pytest.raises(PatternError, match="characters"):
            compile_pattern("a" * (MAX_PATTERN_CHARACTERS + 1))

    @pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(a{1000}){1000}", r"\p{L}{1000}", "\ud800", "a{2,1}"])
    def test_what_re2_refuses_is_said_in_words(self, pattern: str) -> None:
        with pytest.raises(PatternError) as caught:
            compile_pattern(pattern)
        assert "b'" not in str(caught.value)
        assert str(caught.value).encode()

    def test_lone_surrogates_in_actions_count_as_replacement_characters(self) -> None:
        assert to_utf8("a\ud800") == "a\ufffd".encode()
        found = match_action((SAY,), "say \udfff")
        assert found is not None
        assert found.values == {"words": "\ufffd"}

    def test_re2_stays_silent(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(PatternError):
            compile_pattern("(silent")
        assert capfd.readouterr().err == ""


class TestExplanations:
    def test_a_value_that_is_not_allowed(self) -> None:
        found = explain_mismatch(HOUSE.actions, "take spoon from moon")
        assert found.code == "value_not_allowed"
        assert '{item} cannot be "spoon", only one of: "mug", "key"' in found.message
        assert '{place} cannot be "moon"' in found.message

    def test_the_nearest_action_is_named(self) -> None:
        found = explain_mismatch(HOUSE.actions, "took mug from kitchen")
        assert found.code == "unknown_action"
        assert 'The nearest is "take {item} from {place}".' in found.message
        assert '"look"' in found.message

    def test_an_empty_action_and_an_empty_script(self) -> None:
        assert explain_mismatch(HOUSE.actions, " ").code == "empty_action"
        assert "none" in explain_mismatch((), " ").message
        assert explain_mismatch((), "look").code == "unknown_action"

    def test_long_texts_are_cut(self) -> None:
        many = tuple(action(f"do {n} {'x' * 500}", "y") for n in range(200))
        assert len(explain_mismatch(many, "z" * 9_000).message) < 3_000


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Take the key.", "take key"),
        ("'take key!'", "take key"),
        ("Take an old key from the box", "take old key from box"),
        ("look at the sky", "look at the sky"),
        ("Look at the sky.", "look at the sky"),
        ("take KEY", "take KEY"),
        ("take the key and the box", "take the key and the box"),
        ("The end", "The end"),
        ('"."', '"."'),
        ("Call.", "Call."),
        ("say The end.", "say The end."),
    ],
)
def test_a_harmless_variant_of_one_action_is_that_action(text: str, read: str) -> None:
    keys = ("key", "old key")
    actions = (
        ActionSpec(name="take {item}", pattern="take (.+)", parameters={"item": keys}),
        ActionSpec(name="take {item} from box", pattern="take (.+) from box", parameters={"item": keys}),
        ActionSpec(name="look at the sky", pattern="look at the sky"),
        ActionSpec(name="say {words}", pattern="say (.+)", parameters={"words": ()}),
        ActionSpec(name="call", pattern="call"),
        ActionSpec(name="Call", pattern="Call"),
    )
    script = Script(environment={"a": 1}, goal="g", completion_conditions=("c",), actions=actions)
    assert lenient_action(script, text) == read
