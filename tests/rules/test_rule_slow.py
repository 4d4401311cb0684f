"""A rule that takes seconds is named, in a chain too."""

import inspect
import logging
from collections.abc import Iterator
from types import FrameType
from typing import cast

import pytest
from samples import POT

from refinesynth import rules
from refinesynth.rules import BaseRule, Violation, rule_errors
from refinesynth.rules.rule_errors import running
from refinesynth.trajectory import Draft

DRAFT = Draft(script=POT)


class Slow(BaseRule):
    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        found.append(running(cast("FrameType", inspect.currentframe())))
        yield from ()


found: list[str | None] = []


@pytest.mark.parametrize("rule", [Slow(), rules.strict() & Slow()])
def test_it_is_named_in_a_warning_and_while_it_runs(
    rule: rules.Rule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter(range(10, 1000, 2))
    monkeypatch.setattr(rule_errors, "perf_counter", lambda: next(clock) if found else 0.0)
    found.clear()
    with caplog.at_level(logging.WARNING, "refinesynth.rules"):
        rules.verify(DRAFT, rule)
    assert [record.getMessage() for record in caplog.records if "Slow" in record.getMessage()]
    assert found[0] is not None
    assert found[0].startswith(f"the rule Slow ({__file__}:")
