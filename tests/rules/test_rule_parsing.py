"""Rule chains as text: what reads back, what is refused, and how it is said."""

import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import NeverSay, draft, make_plain, right

from refinesynth import rules
from refinesynth.errors import InputError
from refinesynth.rules.registry import BUILT_IN, MAX_RULE_DEPTH
from refinesynth.trajectory import Liberty

SIMPLE = st.one_of(
    st.sampled_from(list(BUILT_IN.values())).map(lambda factory: factory()),
    st.builds(rules.EnoughMistakes, minimum=st.integers(0, 10**30)),
    st.builds(rules.TaskSucceed, phrase=st.text(min_size=1)),
    st.builds(rules.SizeLimits, turn=st.integers(1, 99), total=st.integers(1, 99)),
    st.builds(rules.NoLeaks, also=st.sampled_from([(), ("zounds",), (r"\d", "'\"")]), builtin=st.booleans()),
    st.builds(rules.agentrefine, st.integers(0, 5), letter=st.booleans()),
    st.builds(rules.ToTheLetter, allow=st.lists(st.sampled_from(Liberty)).map(tuple)),
)


def compositions(inner: st.SearchStrategy[rules.Rule]) -> st.SearchStrategy[rules.Rule]:
    some = st.lists(inner, max_size=3)
    return st.one_of(
        some.map(lambda parts: rules.all_of(*parts)),
        some.map(lambda parts: rules.first_failure(*parts)),
        st.builds(rules.Either, inner, inner),
        inner.map(rules.Not),
        inner.map(rules.warn),
    )


RULES: st.SearchStrategy[rules.Rule] = st.recursive(SIMPLE, compositions, max_leaves=8)


@pytest.mark.long
@given(RULES)
def test_every_repr_reads_back_as_an_equal_rule(rule: rules.Rule) -> None:
    assert rules.parse(repr(rule)) == rule


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_every_name_reads_with_and_without_brackets(name: str) -> None:
    assert rules.parse(name) == rules.parse(f"{name}()") == BUILT_IN[name]()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("strict(min_refinements=3)", rules.strict(3)),
        (" agentrefine(1)\n", rules.agentrefine(1)),
        ("~TurnLimit(most=8) & TaskSucceed", ~rules.TurnLimit(most=8) & rules.TaskSucceed()),
        (
            "ReadableText | RequiredKeys & TaskSucceed",
            rules.ReadableText() | (rules.RequiredKeys() & rules.TaskSucceed()),
        ),
        ("warn(strict) & script()", rules.warn(rules.strict()) & rules.script()),
        ("first_failure()", rules.first_failure()),
        ("NoLeaks(also=('a',), voices=['DM'])", rules.NoLeaks(also=("a",), voices=("DM",))),
        ("strict(imagined='false')", rules.strict(imagined=False)),
        ("(\n  strict\n  & TaskSucceed('Done')\n)", rules.strict() & rules.TaskSucceed("Done")),
    ],
)
def test_what_a_user_may_write(text: str, rule: rules.Rule) -> None:
    assert rules.parse(text) == rule


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("strict(", "cannot be read"),
        ("strict() and TaskSucceed()", "is not a rule"),
        ("strict().rules", "is not a rule"),
        ("__import__('os').system('true')", "is not a rule"),
        ("__import__('os')", "no rule"),
        ("TaskSucceed(phrase=open('/etc/passwd'))", "not a literal"),
        ("TaskSucceed(*'ab')", "not a literal"),
        ("TaskSucceed(**{'phrase': 'x'})", r"no \*\*"),
        ("TaskSucceed(phrase='')", "do not fit: phrase"),
        ("TaskSucceed(word='x')", "do not fit: word"),
        ("TaskSucceed('a', phrase='b')", "do not fit"),
        ("agentrefine(letter='some')", "do not fit: letter"),
        ("TurnLimit(most=40, most=400)", "gives a setting twice"),
        ("strict() & ~warn(strict(within=3, within=4))", "gives a setting twice"),
        ("strict(within=0)", "do not fit: within"),
        ("NoLeaks(also=('(',))", "cannot use"),
        ("warn()", "cannot be made"),
        ("warn(strict, strict)", "cannot be made"),
        ("first_failure(rules=strict)", "not a literal"),
        ("\x00", "cannot be read"),
        ("'\ud800'", "cannot be read"),
        ("strict & " * 5_000 + "strict", "characters"),
        ("~" * (MAX_RULE_DEPTH + 1) + "strict", "deeper"),
        ("(" * 5_000 + ")" * 5_000, "cannot be read|deeper"),
        ("~" * 15_000 + "x", "cannot be read|deeper"),
        ("TaskSucceed(" + "[" * 150 + "]" * 150 + ")", "do not fit"),
        ("1" * 5_000, "cannot be read"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        rules.parse(text)
    assert str(caught.value).encode()
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize(
    ("name", "near"), [("strickt", "strict"), ("tasksucceed", "TaskSucceed"), ("turn_limit", "TurnLimit")]
)
def test_an_unknown_name_is_told_what_comes_near(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean .*{near}") as caught:
        rules.parse(f"strict & {name}()")
    assert all(known in str(caught.value) for known in BUILT_IN)


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["strict", "(", ")", "~", "&", "|", ",", "warn", "k=", "1", "'"])).map("".join)
)
def test_any_text_is_a_rule_or_an_input_error(text: str) -> None:
    try:
        rule = rules.parse(text)
    except InputError:
        return
    assert isinstance(rule, rules.Rule)


def test_odd_escapes_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rules.parse(r"NoLeaks(also=('\d',))") == rules.NoLeaks(also=(r"\d",))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers rules, as pip would leave it."""
    metadata = tmp_path / "their_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[refinesynth.rules]\n"
        "NeverSay = rule_drafts:NeverSay\n"
        "never_shout = rule_drafts:never_shout\n"
        "plain = rule_drafts:make_plain\n"
        "trouble = rule_drafts:makes_trouble\n"
        "seven = rule_drafts:NOT_CALLABLE\n"
        "nothing = rule_drafts:makes_nothing\n"
        "gone = no_such_module_anywhere:Rule\n"
        "broken = their_broken_rules:Rule\n"
        "strict = rule_drafts:makes_trouble\n"
    )
    (tmp_path / "their_broken_rules.py").write_text("raise RuntimeError('broken on import')\n")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.usefixtures("installed")
class TestEntryPoints:
    def test_classes_and_factories_are_found_by_name(self) -> None:
        assert rules.parse("NeverSay(word='darn')") == NeverSay("darn")
        assert rules.parse("NeverSay") == NeverSay()
        assert rules.parse("script & never_shout('ho')") == rules.script() & NeverSay("HO")

    def test_rules_without_the_base_class_compose(self) -> None:
        shout = draft(right("say zounds"))
        for text in ("plain & plain", "plain | plain", "plain & TurnLimit", "TurnLimit & plain"):
            assert not rules.verify(shout, rules.parse(text)).accepted
        assert rules.verify(shout, rules.parse("~plain")).accepted
        assert rules.parse("plain") is make_plain()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("gone", "cannot be loaded from 'no_such_module_anywhere:Rule'"),
            ("broken", "broken on import"),
            ("seven", "a class or a function is expected"),
            ("nothing", "makes 7, which is not a rule"),
            ("trouble", "no licence"),
            ("NeverSay(1, 2)", "cannot be made"),
            ("neversay", "Did you mean NeverSay"),
        ],
    )
    def test_broken_ones_are_told(self, text: str, said: str) -> None:
        with pytest.raises(InputError, match=said):
            rules.parse(text)

    def test_one_with_the_name_of_a_built_in_rule_is_refused_by_name(self) -> None:
        said = "'strict' is built in, and 'rule_drafts:makes_trouble' of the package 'their-rules' is registered"
        with pytest.raises(InputError, match=said):
            rules.parse("strict")

    def test_listing_loads_nothing(self) -> None:
        known = rules.available()
        assert known["broken"] == "from their_broken_rules:Rule"
        assert known["strict"] != "from rule_drafts:makes_trouble"
