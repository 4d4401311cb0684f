"""A rule that takes seconds is named, in every composition too."""

import logging
from collections.abc import Iterator

import pytest
from samples import POT

from refinesynth import rules
from refinesynth.rules import BaseRule, Violation
from refinesynth.rules import rule as rule_module
from refinesynth.trajectory import Draft

DRAFT = Draft(script=POT)


class Slow(BaseRule):
    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        called.append(True)
        yield self.violation(0, "slow", "It took long.")


called: list[bool] = []
SLOW = Slow()


@pytest.mark.parametrize(
    "rule",
    [
        SLOW,
        rules.strict() & SLOW,
        SLOW | SLOW,
        ~SLOW,
        rules.warn(SLOW),
        rules.first_failure(rules.TurnLimit(), ~(rules.TurnLimit() & rules.warn(SLOW))),
    ],
)
def test_it_is_named_in_a_warning(
    rule: rules.Rule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = iter(range(10, 1000, 2))
    monkeypatch.setattr(rule_module, "perf_counter", lambda: next(seconds) if called else 0.0)
    called.clear()
    with caplog.at_level(logging.WARNING, "refinesynth.rules"):
        rules.verify(DRAFT.model_copy(update={"finished": True}), rule)
    slow = [record.getMessage() for record in caplog.records]
    assert any("the rule Slow took" in message for message in slow)
    assert not [message for message in slow if message.split()[2] in {"All", "Either", "Not", "Warn", "FirstFailure"}]
