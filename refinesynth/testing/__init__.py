"""Tools for tests of your own rules and backends: Hypothesis strategies, and a scripted completion function.

    from hypothesis import given
    from refinesynth import rules, testing

    @given(testing.drafts())
    def test_my_rule_never_raises(draft):
        list(MyRule()(draft))

    @given(testing.valid_drafts())
    def test_my_rule_accepts_what_is_right(draft):
        assert rules.verify(draft, MyRule()).accepted

    @given(testing.corruptions())
    def test_my_chain_still_catches(corruption):
        assert not rules.verify(corruption.draft, rules.strict() & MyRule()).accepted

For grounded play, `valid_grounded_scripts` gives scripts with a rulebook and `valid_grounded_drafts` drafts that follow
it.

Needs `pip install refinesynth[testing]`.
"""

try:
    import hypothesis as _hypothesis
except ModuleNotFoundError as error:
    raise ImportError("refinesynth.testing needs Hypothesis: pip install refinesynth[testing]") from error

from refinesynth.testing.completions import Answer, ScriptedCompletion
from refinesynth.testing.corruptions import CORRUPTIONS, corruptions
from refinesynth.testing.grounded_worlds import valid_grounded_drafts, valid_grounded_scripts
from refinesynth.testing.valid import Corruption, drafts, scripts, texts, turns, valid_drafts, valid_scripts

del _hypothesis

__all__ = [
    "CORRUPTIONS",
    "Answer",
    "Corruption",
    "ScriptedCompletion",
    "corruptions",
    "drafts",
    "scripts",
    "texts",
    "turns",
    "valid_drafts",
    "valid_grounded_drafts",
    "valid_grounded_scripts",
    "valid_scripts",
]
