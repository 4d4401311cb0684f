"""What is said above the board while a run goes on."""

import logging
from collections.abc import Iterator

import pytest
from samples import POT

from refinesynth.cli.run_display import show_events
from refinesynth.rules import Violation, verify
from refinesynth.rules import rule as rule_module
from refinesynth.trajectory import Draft


def lazy(_draft: Draft, /) -> Iterator[Violation]:
    yield from ()


def test_a_slow_rule_and_what_servers_lack_and_load_are_said_once_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_module, "SLOW_SECONDS", -1.0)
    said = list[str]()
    known = [{"event": "goes_without", "text": "m does not take seed\x1b"}, {"event": "loading", "text": "none"}]
    with show_events(said.append):
        for _ in range(2):
            assert verify(Draft(script=POT), lazy).accepted
            for facts in known:
                logging.getLogger("refinesynth.backends").warning("%s", facts["text"], extra={"facts": facts})
            logging.getLogger("refinesynth.backends").warning("something else")
    assert verify(Draft(script=POT), lazy).accepted
    slow_one, lack, cache = said
    assert slow_one.startswith("! the rule lazy took ")
    assert (lack, cache) == ("! m does not take seed\\u001b", "! none")
