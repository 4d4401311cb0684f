"""The values: they survive a file and both spellings, and read whatever an LLM writes."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from refinesynth.testing import drafts, scripts, texts, turns, valid_drafts, valid_scripts
from refinesynth.text.formatting import scrub
from refinesynth.trajectory import (
    MAX_RAW_CHARACTERS,
    ActionSpec,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Script,
    Trajectory,
    Usage,
    flagged_turns,
    read_turn,
    read_turns,
)

KEYS = st.sampled_from(
    ("role", "Thought", "thought", "Action", "action", "Observation", "parameter_error", "place_error", "logic_error", "turn")
) | texts()  # fmt: skip
ROLES = st.sampled_from(("Player", " player ", "DM", "dungeon master", "DungeonMaster", "Narrator"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | texts() | ROLES
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6)
)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, requests=COUNTS, input_tokens=COUNTS, cached_tokens=COUNTS, output_tokens=COUNTS)
PROVENANCES = st.builds(
    Provenance,
    models=st.dictionaries(st.sampled_from(("player", "dungeon_master")), texts(surrogates=False), max_size=2),
    play=st.sampled_from(("live", "narrated")),
    seed=st.integers(0, 2**63 - 1),
    rules=texts(surrogates=False),
    package_version=st.just("0.1.0"),
    attempts=st.integers(1, 4),
    script_attempts=st.integers(1, 4),
    usage=USAGES,
    cost_usd=st.none() | st.floats(0, 1e6),
)
PERSONAS = texts(surrogates=False).filter(str.strip).map(lambda text: Persona(text=text))


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """What is accepted, with any persona and any provenance."""
    draft = draw(valid_drafts())
    return Trajectory.model_validate(
        {
            "id": draw(texts(surrogates=False).filter(bool)),
            "persona": draw(PERSONAS),
            "script": draft.script,
            "turns": draft.turns,
            "provenance": draw(PROVENANCES),
        }
    )


@given(trajectories())
def test_a_trajectory_survives_a_line_of_a_file(trajectory: Trajectory) -> None:
    line = trajectory.to_json()
    assert len(line.splitlines()) == 1
    assert Trajectory.from_json(line) == trajectory
    assert Trajectory.from_json(line).to_json() == line
    assert Trajectory.from_json(line.decode()) == trajectory
    assert trajectory.draft() == Draft(script=trajectory.script, turns=trajectory.turns)
    assert trajectory.mistakes() == flagged_turns(trajectory.turns)


@given(valid_drafts())
def test_a_draft_survives_the_papers_spelling(draft: Draft) -> None:
    written = orjson.loads(orjson.dumps(draft.script.to_paper()))
    assert Script.model_validate(written) == draft.script
    assert Script.from_llm({**written, "comment": "as in section 3.1"}) == draft.script
    story: list[JsonValue] = [
        turn.to_paper(number) for number, turn in enumerate(draft.turns, start=1) if not isinstance(turn, MalformedTurn)
    ]
    assert read_turns(story) == draft.turns
    assert Draft.from_text(draft.script, orjson.dumps({"Trajectory": story}).decode()) == draft


@given(drafts() | scripts() | turns())
def test_any_value_is_one_line_of_json(value: Draft | Script | PlayerTurn) -> None:
    line = value.to_json()
    assert len(line.splitlines()) == 1
    assert isinstance(orjson.loads(line), dict)


@given(turns() | drafts(surrogates=False))
@example(Draft(script=Script(environment={"many": 2**64}, goal="Count.", completion_conditions=(), actions=())))
def test_what_holds_no_lone_surrogate_is_read_back_as_it_was(value: PlayerTurn | Draft) -> None:
    again = type(value).from_json(value.to_json())
    assert again.to_json() == value.to_json()


@given(JSON)
def test_any_json_is_a_turn(item: JsonValue) -> None:
    turn = read_turn(item)
    assert isinstance(turn, PlayerTurn | DungeonMasterTurn | MalformedTurn)
    if isinstance(turn, MalformedTurn):
        assert turn.problem
        assert len(turn.raw) <= MAX_RAW_CHARACTERS
    turn.to_json()


@given(valid_scripts(), texts() | JSON.map(repr), st.lists(turns(), max_size=3))
def test_any_text_is_a_draft(
    script: Script, text: str, before: list[PlayerTurn | DungeonMasterTurn | MalformedTurn]
) -> None:
    prefix = tuple(turn for turn in before if not isinstance(turn, MalformedTurn))
    draft = Draft.from_text(script, text, prefix=prefix)
    assert draft.turns[: len(prefix)] == prefix
    assert draft.text_error is None or len(draft.turns) == len(prefix)
    assert draft.finished
    draft.to_json()


@given(valid_drafts(), st.integers(0, 12))
def test_an_answer_may_continue_a_prefix_or_start_over_with_it(draft: Draft, length: int) -> None:
    whole = [turn for turn in draft.turns if not isinstance(turn, MalformedTurn)]
    before, rest = whole[:length], whole[length:]
    assume(not before or _acts(rest[: len(before)]) != _acts(before))

    def text(some: list[Any]) -> str:
        return orjson.dumps([turn.model_dump() for turn in some]).decode()

    assert Draft.from_text(draft.script, text(rest), prefix=before).turns == draft.turns
    assert Draft.from_text(draft.script, text(whole), prefix=before).turns == draft.turns


@given(valid_drafts(), texts(surrogates=False))
def test_an_answer_may_start_over_in_other_words(draft: Draft, word: str) -> None:
    before = tuple(turn for turn in draft.turns if not isinstance(turn, MalformedTurn))[:-2]
    assume(len({turn.action for turn in before if isinstance(turn, PlayerTurn)}) > 2)
    again = [{**turn.model_dump(), "thought": f"Once more. {word}"} for turn in draft.turns]
    told = Draft.from_text(draft.script, orjson.dumps(again).decode(), prefix=before)
    assert told.turns[: len(before)] == before, "what is verified stands"
    assert _acts(told.turns) == _acts(draft.turns)


def _acts(turns: Iterable[DraftTurn]) -> list[str]:
    return [turn.action for turn in turns if isinstance(turn, PlayerTurn)]


@given(drafts(), st.integers(0, 12))
def test_a_prefix_of_a_draft_is_unfinished_and_readable(draft: Draft, length: int) -> None:
    prefix = draft.prefix(length)
    assert prefix.turns == draft.turns[:length]
    assert not prefix.finished
    assert prefix.text_error is None
    assert prefix.prefix(length) == prefix


@given(drafts())
def test_flagged_turns_are_player_turns_before_a_flagged_answer(draft: Draft) -> None:
    flagged = flagged_turns(draft.turns)
    assert list(flagged) == sorted(set(flagged))
    for at, turn in enumerate(draft.turns):
        after = draft.turns[at + 1] if at + 1 < len(draft.turns) else None
        wrong = isinstance(turn, PlayerTurn) and isinstance(after, DungeonMasterTurn) and after.mistake_kind is not None
        assert (at in flagged) == wrong


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert one + Usage() == one


def test_the_papers_printed_example_is_read() -> None:
    script = Script.model_validate(
        {
            "Environment": {"home": {"user": ["config.cfg"]}},
            "Goal": "Navigate to and edit the config.cfg file to set 'mode=on'.",
            "Completion Conditions": "mode=on in config.cfg",
            "Available Actions": {
                "cd {path}": {"verification code": r"^\s*cd\s+(.*?)\s*$", "parameters": {"path": ["home", "user", 3]}}
            },
        }
    )
    assert script.completion_conditions == ("mode=on in config.cfg",)
    assert script.actions[0].parameters == {"path": ("home", "user", "3")}
    assert script.actions[0].placeholders == ("path",)
    story = [
        {"turn": 1, "role": "Player", "Thought": "What is there?", "Action": "ls config.cfg"},
        {
            "turn": 2, "role": "DM", "Thought": "The format is wrong.", "Observation": "Error: Invalid command format.",
            "parameter_error": True, "place_error": False, "logic_error": False,
        },
    ]  # fmt: skip
    draft = Draft.from_text(script, f"Here it is:\n```json\n{orjson.dumps(story).decode()}\n```")
    assert flagged_turns(draft.turns) == (0,)


def test_what_cannot_be_turns_is_explained_to_the_model() -> None:
    script = Script(environment={}, goal="g", completion_conditions=(), actions=())
    for text, says in (("sorry", "no JSON"), ('{"a": 1}', "one list of turns"), ('{"a": [], "b": []}', "'a', 'b'")):
        assert says in str(Draft.from_text(script, text).text_error)
    missing = read_turn({"role": "Player", "Thought": "x"})
    assert isinstance(missing, MalformedTurn)
    assert missing.problem.casefold() == "action: field required"
    strange = read_turn({"role": "Wizard"})
    assert isinstance(strange, MalformedTurn)
    assert strange.raw == '{"role":"Wizard"}'
    with pytest.raises(ValueError, match="got int"):
        read_turns(7)


def test_what_we_write_forbids_unknown_fields_and_changes() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        PlayerTurn.model_validate({"thought": "", "action": "look", "mood": "good"})
    turn = PlayerTurn(thought="", action="look")
    with pytest.raises(ValidationError, match="frozen"):
        setattr(turn, "action", "jump")  # noqa: B010 - as an assignment, the type checker refuses it first


@pytest.mark.parametrize("text", ["", "  \n", "x" * 10_001])
def test_a_persona_says_something_of_bounded_length(text: str) -> None:
    with pytest.raises(ValidationError):
        Persona(text=text)


@pytest.mark.parametrize(
    ("allowed", "kept"), [(None, ()), ("mug", ("mug",)), (2, ("2",)), (["a", 1, 2.5], ("a", "1", "2.5")), ([], ())]
)
def test_allowed_values_become_text(allowed: object, kept: tuple[str, ...]) -> None:
    read = ActionSpec.model_validate({"name": "take {x}", "pattern": "take (.+)", "parameters": {"x": allowed}})
    assert read.parameters == {"x": kept}


@pytest.mark.parametrize("parameters", [["x"], {"x": {"y": 1}}, {"x": [None]}, {"x": [["a"]]}])
def test_other_parameters_are_refused(parameters: object) -> None:
    with pytest.raises(ValidationError):
        ActionSpec.model_validate({"name": "take {x}", "pattern": "take (.+)", "parameters": parameters})


@given(st.text(max_size=20), st.dictionaries(st.text("abx{", max_size=3), st.text("{}ab", max_size=4), max_size=3))
def test_filling_replaces_known_placeholders_once(name: str, values: dict[str, str]) -> None:
    filled = ActionSpec(name=f"take {{a}}{name}", pattern="x").fill(values)
    assert filled.startswith("take " + values.get("a", "{a}"))
    plain = ActionSpec(name="take {a}, {b}, {c}", pattern="x").fill({"a": "{b}", "b": "1"})
    assert plain == "take {b}, 1, {c}"


@given(texts())
def test_text_is_kept_to_the_letter_but_for_lone_surrogates(text: str) -> None:
    turn = PlayerTurn(thought=text, action=text)
    assert PlayerTurn.from_json(turn.to_json()) == PlayerTurn(thought=scrub(text), action=scrub(text))
