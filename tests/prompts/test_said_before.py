"""Everything that a rule refuses is told before: for each rule and code, the words of the prompt whose role can cause
it."""

import ast
import inspect
import pickle
import re
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel
from samples import SHED, SHED_GROUNDED

from refinesynth import rules
from refinesynth.backends.role import Role
from refinesynth.client.session import Session
from refinesynth.episode import EpisodeContext, EpisodeSettings
from refinesynth.episode.episode_record import EpisodeRecord
from refinesynth.episode.narrated import NARRATED, narrator_of
from refinesynth.prompts import Prompts
from refinesynth.rules.registry import BUILT_IN, numbers
from refinesynth.rules.text_form import MAX_OBSERVATION
from refinesynth.settings.mistakes import at_least
from refinesynth.trajectory import Persona

SHIPPED = Prompts()
EXAMPLE: dict[str, Any] = {"script": SHED, "answer": {"turns": []}}
DATA: Mapping[str, Mapping[str, Any]] = {"narrator": {"minimum": 2, "example": EXAMPLE}}
WRITERS = ("script_writer", "rulebook_writer")


def told(prompts: Prompts, name: str) -> str:
    data: Mapping[str, Any] = DATA.get(name, {"examples": []} if name.endswith("_writer") else {})
    return " ".join(prompts.fill(name, "instructions", **data).split())


NOBODY = "the program's own doing"
"""In grounded play flags, progress and the end are computed."""

UNSAID = ""
"""Who writes a control character does not mean to; to speak of them would teach them."""

IN_TURNS: Mapping[str, Mapping[str, str]] = {
    "ToTheLetter": {
        "not_json": "Nothing stands around it",
        "wrong_keys": "and no others; the three errors are true or false",
    },
    "ReadableText": {"not_json": "Answer with one JSON object with one key, `turns`"},
    "RequiredKeys": {"wrong_keys": "All keys are always there"},
    "ValidActions": {
        "unknown_action": "`action` is one available action",
        "value_not_allowed": "a value is not among the allowed ones",
        "empty_action": "No thought, action or observation is empty",
        "action_too_long": "one line, without quotes",
    },
    "UnflaggedEnding": {"ends_in_error": "The last turn is the environment's: all three errors are false"},
    "TaskSucceed": {
        "no_success": "its observation ends with the exact words `Task Succeed`",
        "no_turns": "the list of all turns after those, to the end",
    },
    "EnoughMistakes": {"too_few_errors": "The record contains at least 2 mistakes"},
    "Alternation": {"role_repeats": "Turns alternate"},
    "NothingBlank": {"blank": "No thought, action or observation is empty"},
    "ReadsBack": {
        "ambiguous_text": "one line, without quotes around it and without a label. No line of a thought or an action begins with "
        "`Thought:`, `Action:` or `Observation:`",
        "control_character": UNSAID,
    },
    "SucceedsOnce": {"success_too_early": "These two words occur nowhere else"},
    "RealRefinement": {
        "not_refined": "takes a different action that is right; at the latest, one of the next 3 actions is"
    },
    "NoRepeatedMistake": {"mistake_repeated": "does not take an action again unchanged that was a mistake"},
    "NoFalseAlarm": {
        "false_alarm": "An action whose form and values are available is never a parameter error",
        "nothing_to_judge": "the player has the first of the record",
    },
    "NoLeaks": {"leak": "no thought of the player speaks of the environment as somebody, of the three errors"},
    "FreshObservations": {"observation_repeats": "No observation repeats another word for word"},
    "TurnLimit": {"too_many_turns": "more than 100 turns"},
    "SizeLimits": {
        "turn_too_long": "no turn has more than 8000 characters",
        "too_long": "or 60000 characters in all, are refused",
    },
}
"""What the Narrator is told, who writes both voices."""

BY_A_DUNGEON_MASTER: Mapping[str, Mapping[str, str]] = {
    "RequiredKeys": {
        "wrong_keys": "the keys `thought`, `parameter_error`, `place_error`, `logic_error` and `observation`"
    },
    "ValidActions": dict.fromkeys(
        ("unknown_action", "value_not_allowed", "empty_action", "action_too_long"),
        "the flag is true exactly when `available` is false",
    ),
    "NothingBlank": {"blank": "It is never empty"},
    "SucceedsOnce": {"success_too_early": "They never follow a wrong action"},
    "NoFalseAlarm": {"false_alarm": "the flag is true exactly when `available` is false"},
    "FreshObservations": {"observation_repeats": "no observation repeats an earlier one word for word"},
    "SizeLimits": {"turn_too_long": "with your thought it has never more than 8000 characters"},
}
"""What the DungeonMaster of live play is told. The Player's chat is what training sees: its first message says how to
answer, and no rule is told there."""

BY_THE_WORLD: Mapping[str, Mapping[str, str]] = {
    "Replays": dict.fromkeys(
        (
            "not_grounded", "done_at_start", "wrong_flags", "wrong_progress", "wrong_transient", "wrong_success", "goes_on",
            "cannot_replay",
        ),
        NOBODY,
    ),
    "WordsAgree": {"words_disagree": "Name no thing, place or person that is neither in `visible` nor in `text`"},
}  # fmt: skip

IN_SCRIPTS: Mapping[str, Mapping[str, str]] = {
    "ActionCount": {
        "too_few_actions": "fewer than 3 or more than 40 are refused",
        "too_many_actions": "fewer than 3 or more than 40 are refused",
    },
    "UniqueNames": {"same_name": "No two names say the same thing"},
    "PlaceholdersHaveParameters": {
        "placeholder_repeated": "is one placeholder in braces, each once",
        "placeholder_without_parameter": "Every placeholder has its entry",
        "parameter_without_placeholder": "every entry its placeholder",
        "too_many_values": "ore than 500 values are refused",
        "type_does_not_fit": "All values are of this type",
    },
    "EnvironmentLimits": {
        "environment_empty": "It is never empty",
        "environment_too_deep": "at most 12 levels deep",
        "environment_too_large": "as JSON at most 50000 characters long",
        "control_character": UNSAID,
    },
    "PatternsCompile": {"pattern_refused": "in RE2 syntax (no look-ahead or look-behind, no backreferences)"},
    "GroupsFitPlaceholders": {"groups_do_not_fit": "ther groups are written `(?:...)`"},
    "PatternsNeedText": {"matches_nothing": " empty text"},
    "PatternsMatchTheirTemplates": {"misses_template": "its own template filled with every allowed value"},
    "PatternsAreUnambiguous": {"ambiguous": "no filled form of any other action"},
}

IN_RULEBOOKS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "RulebookCompiles": {
        "no_rulebook": ("rulebook_writer", "`completion_conditions`, `actions` and `rulebook`"),
        "does_not_compile": ("rulebook_writer", "There is nothing else: no `map`"),
    },
    "GoalFitsConditions": {"goal_does_not_fit": ("rulebook_writer", "one for each statement, in the same order")},
    "ValuesExist": {"values_unknown": ("rulebook_writer", "one at least is a name that exists in `environment`")},
    "RulebookRuns": {"does_not_run": ("rulebook_writer", "All but the last step must exist")},
    "NotYetDone": {"already_done": ("rulebook_writer", "At the start at least one does not")},
    "SolutionWorks": {"solution_fails": ("rulebook_writer", "every action of it must be accepted")},
    "Solvable": {"unsolvable": ("rulebook_writer", "and the last one reaches the goal")},
    "ActionsUsable": {
        "never_usable": ("rulebook_writer", "Each works at some time in some state"),
    },
    "DifficultyBand": {
        "too_easy": ("rulebook_writer", "that the shortest solution found by search is within the range"),
        "too_hard": ("rulebook_writer", "that the shortest solution found by search is within the range"),
    },
}


def names_of(chain: rules.Rule) -> set[str]:
    if isinstance(chain, rules.All | rules.FirstFailure):
        return {name for rule in chain.rules for name in names_of(rule)}
    return {type(chain).__name__}


def codes_of(name: str) -> set[str]:
    """The codes that a rule writes out in its source: what it calls `violation`, `fault` or `yield`s with."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(dedent(inspect.getsource(BUILT_IN[name])))):
        given: list[ast.expr] = []
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"violation", "fault"}
        ):
            given = node.args[:2]
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            given = node.value.elts[:1]
        texts = [arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        found |= {text for text in texts if re.fullmatch("[a-z_]+", text)}
    return found


def check(table: Mapping[str, Mapping[str, Any]], *chains: rules.Rule) -> None:
    named = {name for chain in chains for name in names_of(chain)}
    assert named <= table.keys(), (
        f"say in the prompts what these refuse, and here with which words: {named - table.keys()}"
    )
    for name in named:
        assert codes_of(name) <= table[name].keys(), f"a code of {name} is told nowhere"


def test_every_rule_and_code_has_its_words() -> None:
    check(IN_TURNS, rules.agentrefine(), rules.agentrefine(letter=True), rules.strict())
    check({**IN_TURNS, **BY_THE_WORLD}, rules.grounded())
    check(IN_SCRIPTS, rules.script())
    check({**IN_SCRIPTS, **IN_RULEBOOKS}, rules.grounded_script((3, 9)))
    assert codes_of("SizeLimits") == {"turn_too_long", "too_long"}, "codes are found where rules write them"
    assert codes_of("DifficultyBand") == {"too_easy", "too_hard"}


WORDS = [
    *(("narrator", words) for codes in IN_TURNS.values() for words in codes.values()),
    *(("dungeon_master", words) for codes in BY_A_DUNGEON_MASTER.values() for words in codes.values()),
    *(("grounded_master", words) for codes in BY_THE_WORLD.values() for words in codes.values() if words != NOBODY),
    ("grounded_master", f"never more than {MAX_OBSERVATION} characters"),
    *((writer, words) for writer in WRITERS for codes in IN_SCRIPTS.values() for words in codes.values()),
    *(where for codes in IN_RULEBOOKS.values() for where in codes.values()),
    *(
        ("rulebook_writer", words)
        for words in ("A condition has at most 1000 characters", "at most 24 requirements", "at most 100 actions")
    ),
    *((writer, "A pattern has at most 2000 characters") for writer in WRITERS),
]


@pytest.mark.parametrize(("prompt", "words"), WORDS)
def test_the_prompt_says_so_beforehand(prompt: str, words: str) -> None:
    assert words in told(SHIPPED, prompt)


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


def test_what_an_executed_world_says_is_told_from_its_limits() -> None:
    assert SHED_GROUNDED.rulebook is not None
    assert rules.SizeLimits().turn >= MAX_OBSERVATION
