"""What a script must satisfy, rule by rule."""

import pytest
from pydantic import JsonValue
from rule_drafts import GO, HOUSE, LOOK, SAY, TAKE

from refinesynth.prompts.prompt_library import shipped_examples
from refinesynth.rules import (
    ActionCount,
    EnvironmentLimits,
    GroupsFitPlaceholders,
    PatternsAreUnambiguous,
    PatternsCompile,
    PatternsMatchTheirTemplates,
    PatternsNeedText,
    PlaceholdersHaveParameters,
    Rule,
    UniqueNames,
    script,
)
from refinesynth.rules.name_search import unmentioned_conditions
from refinesynth.rules.script_shape import MAX_ACTIONS_READ, with_fitting_patterns
from refinesynth.trajectory import ActionSpec, Draft, Script


def action(name: str, pattern: str = "x", **parameters: tuple[str, ...]) -> ActionSpec:
    return ActionSpec(name=name, pattern=pattern, parameters=parameters)


def of(*actions: ActionSpec, environment: dict[str, JsonValue] | None = None, **fields: object) -> Draft:
    changed: dict[str, object] = {"actions": actions, **fields}
    if environment is not None:
        changed["environment"] = environment
    return Draft(script=HOUSE.model_copy(update=changed))


def codes(rule: Rule, subject: Draft) -> list[str]:
    return [violation.code for violation in rule(subject)]


def test_nothing_of_a_script_is_kept() -> None:
    bad = of(action("go {a}", "("), environment={})
    found = list(script()(bad))
    assert len({violation.rule for violation in found}) >= 4
    assert all(violation.turn == 0 and not violation.keeps_prefix for violation in found)


def test_action_count() -> None:
    many = [action(f"do {n}") for n in range(41)]
    counts = [codes(ActionCount(), of(*many[:count])) for count in (0, 2, 3, 40, 41)]
    assert counts == [["too_few_actions"], ["too_few_actions"], [], [], ["too_many_actions"]]


@pytest.mark.parametrize("name", ["LOOK", " look ", "look"])
def test_names_are_unique_after_folding(name: str) -> None:
    assert codes(UniqueNames(), of(LOOK, action(name))) == ["same_name"]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (action("go {a}", a=()), []),
        (action("go"), []),
        (action("go {a}"), ["placeholder_without_parameter"]),
        (action("go", a=("x",)), ["parameter_without_placeholder"]),
        (action("go {a}", A=()), ["placeholder_without_parameter", "parameter_without_placeholder"]),
        (action("go {a} {a}", a=()), ["placeholder_repeated"]),
        (action("go {a}", a=tuple(map(str, range(501)))), ["too_many_values"]),
    ],
)
def test_placeholders_and_parameters(spec: ActionSpec, found: list[str]) -> None:
    assert codes(PlaceholdersHaveParameters(), of(spec)) == found


def nested(levels: int) -> dict[str, JsonValue]:
    value: dict[str, JsonValue] = {"bottom": 1}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


class TestEnvironment:
    @pytest.mark.parametrize("environment", [{"a": None}, {"a": [1.5, {"b": "c"}]}, nested(12)])
    def test_passes(self, environment: dict[str, JsonValue]) -> None:
        assert codes(EnvironmentLimits(), of(environment=environment)) == []

    def test_empty(self) -> None:
        assert codes(EnvironmentLimits(), of(environment={})) == ["environment_empty"]

    @pytest.mark.parametrize("levels", [13, 5_000])
    def test_deep(self, levels: int) -> None:
        assert codes(EnvironmentLimits(), of(environment=nested(levels))) == ["environment_too_deep"]

    @pytest.mark.parametrize("text", ["x" * 100, "\ud800" * 100])
    def test_large(self, text: str) -> None:
        assert codes(EnvironmentLimits(characters=100), of(environment={"a": text})) == ["environment_too_large"]

    def test_what_json_cannot_hold_has_a_size(self) -> None:
        assert codes(EnvironmentLimits(), of(environment={"a": "\ud800", "b": 10**30})) == []

    @pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\x9b"])
    def test_what_the_player_reads_holds_no_control_character(self, character: str) -> None:
        odd = f"Open{character} the door."
        for subject in (of(goal=odd), of(introduction=odd), of(completion_conditions=("Done.", odd)), of(action(odd))):
            assert codes(EnvironmentLimits(), subject) == ["control_character"]
        assert codes(EnvironmentLimits(), of(goal="Open\r\n\tthe door: é 門 \u200d")) == []


class TestPatterns:
    @pytest.mark.parametrize("pattern", ["(", "(?=x)x", r"(x)\1", "x" * 2_001])
    def test_refused(self, pattern: str) -> None:
        [violation] = PatternsCompile()(of(LOOK, action("go", pattern)))
        assert violation.code == "pattern_refused"
        assert '"go"' in violation.message

    def test_groups(self) -> None:
        bad = of(action("go {a}", "go .+", a=()), action("put {a} on {b}", "put (?P<a>.+) on (?P<c>.+)", a=(), b=()))
        assert codes(GroupsFitPlaceholders(), bad) == ["groups_do_not_fit", "groups_do_not_fit"]
        assert codes(GroupsFitPlaceholders(), of(GO, TAKE, SAY, LOOK, action("bad", "("))) == []

    @pytest.mark.parametrize("pattern", [".*", "(?:x)?", "^$", "|x"])
    def test_the_empty_string(self, pattern: str) -> None:
        assert codes(PatternsNeedText(), of(LOOK, action("x", pattern))) == ["matches_nothing"]

    def test_what_needs_text_or_does_not_compile(self) -> None:
        assert codes(PatternsNeedText(), of(LOOK, action("x", "("))) == []


class TestOwnTemplate:
    def test_one_value_that_does_not_match_is_enough(self) -> None:
        lower = action("go to {place}", "go to ([a-z]+)", place=("hall", "bay 12"))
        [violation] = PatternsMatchTheirTemplates()(of(lower))
        assert violation.code == "misses_template"
        assert '"go to bay 12"' in violation.message

    def test_every_one_of_many_values_is_tried(self) -> None:
        values = (*(f"v{n}" for n in range(50)), "odd one")
        four = action(
            "mix {a} {b} {c} {d}", r"mix (\S+) (\S+) (\S+) (\S+)", a=values[:50], b=values[:50], c=values, d=values[:50]
        )
        assert codes(PatternsMatchTheirTemplates(), of(four)) == ["misses_template"]

    def test_values_must_be_captured_as_filled_in(self) -> None:
        swapped = action("put {a} on {b}", "put (?P<b>.+) on (?P<a>.+)", a=("x", "y"), b=("x", "y"))
        assert codes(PatternsMatchTheirTemplates(), of(swapped)) == ["misses_template"]

    def test_values_that_hold_the_separator(self) -> None:
        spec = action("take {a} from {b}", "take (.+?) from (.+)", a=("news from home",), b=("box",))
        assert codes(PatternsMatchTheirTemplates(), of(spec)) == ["misses_template"]

    @pytest.mark.parametrize(
        "pattern", [r"set (.+)", r"set (\d+)", r"set ([a-z]+)", r"set (\S+@\S+)", r"set (\d\d:\d\d)"]
    )
    def test_a_free_value_matches_some_sample(self, pattern: str) -> None:
        assert codes(PatternsMatchTheirTemplates(), of(action("set {value}", pattern, value=()))) == []

    def test_a_free_value_that_nothing_satisfies(self) -> None:
        spec = action("set {value} in {place}", "set (q{9}) in (.+)", value=(), place=("hall",))
        assert codes(PatternsMatchTheirTemplates(), of(spec)) == ["misses_template"]

    def test_unusable_patterns_are_passed_over(self) -> None:
        assert codes(PatternsMatchTheirTemplates(), of(action("go", "("), action("go {a}", "go", a=()))) == []


class TestAmbiguity:
    def test_a_pattern_that_takes_anothers_action(self) -> None:
        wide = action("use {item}", "use (.+)", item=("key", "pen"))
        narrow = action("use {item} on {thing}", "use (.+) on (.+)", item=("key",), thing=("door",))
        [violation] = PatternsAreUnambiguous()(of(wide, narrow))
        assert violation.code == "ambiguous"
        assert '"use {item}"' in violation.message
        assert '"use key on door"' in violation.message

    def test_one_report_for_each_pair(self) -> None:
        assert (
            codes(PatternsAreUnambiguous(), of(LOOK, GO, action("all", ".+"), action("every", "(?s).+")))
            == ["ambiguous"] * 6
        )

    def test_distinct_patterns_pass(self) -> None:
        assert codes(PatternsAreUnambiguous(), of(GO, TAKE, SAY, LOOK, action("bad", "("))) == []

    def test_free_values_do_not_make_an_action_ambiguous(self) -> None:
        number = action("set {n}", r"set (\d+)", n=())
        word = action("set {w}", r"set ([a-z]+)", w=())
        assert codes(PatternsAreUnambiguous(), of(number, word)) == []


def test_all_functions_of_a_user_are_examined_beside_few_written_actions() -> None:
    functions = (action(f"call {n}", "(").model_copy(update={"function": {"name": f"{n}"}}) for n in range(150))
    many = of(action("go", "("), *functions)
    assert len(codes(PatternsCompile(), many)) == 151
    assert codes(ActionCount(), many) == []
    written = (action(f"do {n}") for n in range(41))
    assert codes(ActionCount(), of(*many.script.actions, *written)) == ["too_many_actions"]


def test_the_work_on_a_huge_script_is_bounded() -> None:
    huge = of(*(action(f"do {n}", "(") for n in range(5_000)))
    assert len(codes(PatternsCompile(), huge)) == MAX_ACTIONS_READ
    assert codes(ActionCount(), huge) == ["too_many_actions"]


@pytest.mark.parametrize(
    ("name", "pattern", "fitting"),
    [
        ("take {file}", "take (?P<file>[a-z]+)", r"take\ (backup1\.tape|a|b\ c)"),
        ("take {file}", "take (?=x)(.+)", r"take\ (backup1\.tape|a|b\ c)"),
        ("take {file}", "(take|get) (?P<file>[a-z1. ]+)", "(?:take|get) (?P<file>[a-z1. ]+)"),
        ("take {file}", r"\(?take[ (]((?P<file>[^)]+))", r"\(?take[ (](?:(?P<file>[^)]+))"),
        ("take ({file})", "take (.+)", r"take\ \((backup1\.tape|a|b\ c)\)"),
        ("say {text}", "say", r"say\ (.+?)"),
        ("look", "(look|see)", "(?:look|see)"),
        ("wait", "(wait)?", "wait"),
    ],
)
def test_a_pattern_that_does_not_fit_is_replaced(name: str, pattern: str, fitting: str) -> None:
    values = {"file": ("backup1.tape", "a", "b c"), "text": ()}
    bad = action(name, pattern, **{key: given for key, given in values.items() if f"{{{key}}}" in name})
    mended, replaced = with_fitting_patterns(of(LOOK, bad, GO).script)
    assert [one.pattern for one in mended.actions] == [LOOK.pattern, fitting, GO.pattern]
    assert replaced == 1
    assert with_fitting_patterns(mended) == (mended, 0)


def test_where_nothing_fits_the_pattern_stays() -> None:
    script = of(action("go {a} {a}", "go", a=("x",)), action("go {b}", "(", b=("x" * 3_000,))).script
    assert with_fitting_patterns(script) == (script, 0)


@pytest.mark.parametrize(
    ("conditions", "actions", "found"),
    [
        (("the drawer is closed", "you hold the ruby"), ("close the drawer", "wait"), ("you hold the ruby",)),
        (("you hold the ruby",), ("wait", "pick up ruby"), ()),
        (("you hold the ruby",), ("wait", "say {words}"), ()),  # it may be said
        (("it is on", "灯が付いている"), ("wait",), ()),
    ],
)
def test_conditions_without_a_word_of_any_action_are_found(
    conditions: tuple[str, ...], actions: tuple[str, ...], found: tuple[str, ...]
) -> None:
    specs = tuple(ActionSpec(name=name, pattern=name) for name in actions)
    imagined = Script(environment={}, goal="g", completion_conditions=conditions, actions=specs)
    assert unmentioned_conditions(imagined) == found


def test_every_condition_of_the_shipped_scripts_shares_a_word_with_an_action() -> None:
    assert [each for script in shipped_examples().scripts for each in unmentioned_conditions(script)] == []
