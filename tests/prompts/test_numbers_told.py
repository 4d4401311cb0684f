"""The numbers that rules refuse by are those that the prompts tell."""

import pickle
import re
from collections.abc import Mapping
from typing import Any

from pydantic_ai.models.test import TestModel
from samples import SHED

from refinesynth import rules
from refinesynth.backends.backend import Role
from refinesynth.client.session import Session
from refinesynth.episode import EpisodeContext, EpisodeSettings
from refinesynth.episode.narrated import NARRATED, narrator_of
from refinesynth.episode.play import EpisodeRecord
from refinesynth.prompts import Prompts
from refinesynth.rules.registry import BUILT_IN, numbers
from refinesynth.settings.mistakes import at_least
from refinesynth.trajectory import Persona

SHIPPED = Prompts()
EXAMPLE: dict[str, Any] = {"script": SHED, "answer": {"turns": []}}
DATA: Mapping[str, Mapping[str, Any]] = {"narrator": {"minimum": 2, "example": EXAMPLE}}
WRITERS = ("script_writer", "rulebook_writer")


def told(prompts: Prompts, name: str) -> str:
    data: Mapping[str, Any] = DATA.get(name, {"examples": []} if name.endswith("_writer") else {})
    return " ".join(prompts.fill(name, "instructions", **data).split())


def test_the_numbers_that_are_told_are_those_that_count() -> None:
    chain = rules.strict(3, within=2, max_turns=30) & rules.SizeLimits(turn=500) & rules.warn(rules.TurnLimit(most=5))
    own = Prompts(rules=(chain, rules.ActionCount(most=9) & rules.PlaceholdersHaveParameters(values=7)))
    narrator, writer = told(own, "narrator"), told(own, "script_writer")
    for words in ("more than 30 turns", "no turn has more than 500 characters", "one of the next 2 actions", "60000"):
        assert words in narrator
    for words in (
        "fewer than 3 or more than 9 are refused",
        "More than 7 values are refused",
        "at most 12 levels deep",
    ):
        assert words in writer
    assert numbers(chain)["EnoughMistakes"] == {"minimum": 3}
    assert "TurnLimit" not in numbers(rules.warn(rules.TurnLimit()) | rules.TurnLimit()), "this binds nobody"
    again = pickle.loads(pickle.dumps(own))
    assert told(again, "narrator") == narrator
    assert again.digest == own.digest == SHIPPED.digest, "a run's rules are recorded by themselves"


def test_no_number_that_is_told_is_a_rules_and_typed_twice() -> None:
    """Each changes with the setting that it names."""
    settings = {"SizeLimits": ("turn", "total"), "TurnLimit": ("most",), "RealRefinement": ("within",)}
    settings |= {"ActionCount": ("least", "most"), "PlaceholdersHaveParameters": ("values",)}
    settings |= {"EnvironmentLimits": ("characters", "depth")}
    for name, given in settings.items():
        for setting in given:
            changed = BUILT_IN[name](**{setting: 17})
            assert isinstance(changed, rules.BaseRule)
            own = Prompts(rules=(changed,))
            texts = [told(own, "narrator"), *(told(own, writer) for writer in WRITERS)]
            assert any(re.search(r"\b17\b", text) for text in texts), (name, setting)


def test_a_narrator_is_never_asked_for_fewer_mistakes_than_its_rules_want() -> None:
    for wanted, rule in ((3, rules.strict(3)), (2, rules.strict(0)), (2, rules.TurnLimit())):
        own = Prompts(rules=(rule,))
        settings = EpisodeSettings(
            rules=rule, script_rules=rules.script(), prompts=own, play="narrated", mistakes=at_least(2)
        )
        record = EpisodeRecord(session=Session(id="x", seed=0), persona=Persona(text="x"))
        cast = EpisodeContext.of(NARRATED, settings, record, models=dict.fromkeys(Role, TestModel()))
        assert narrator_of(cast).minimum == wanted
