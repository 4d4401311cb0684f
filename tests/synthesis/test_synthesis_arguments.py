"""Checks of the arguments of `synthesize`, before anything is played. Episodes are made up."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fates import Fate, Fates, people
from run_records import events

import refinesynth.episode
from refinesynth.backends import Backend
from refinesynth.errors import InputError, RunFolderError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.rules import BaseRule, Violation, strict
from refinesynth.settings import Grounding
from refinesynth.settings.mistakes import natural
from refinesynth.synthesis import synthesize
from refinesynth.trajectory import Draft, Persona

FATES = [Fate(steps=3), Fate(steps=9, accepted=False, refusals=("TurnLimit",)), Fate(steps=0), Fate(steps=5)]
"""Three of four are accepted."""

Acts = Callable[[list[Fate]], Fates]


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Acts:
    """Lets made-up episodes be played instead of real ones."""

    def put_on(fates: list[Fate]) -> Fates:
        stage = Fates(fates)

        async def play_episode(persona: Persona, *, index: int, **_: object) -> EpisodeOutcome:
            return await stage.act(index, persona)

        monkeypatch.setattr(refinesynth.episode, "play_episode", play_episode)
        return stage

    return put_on


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n is 0; should be greater than or equal to 1: number of accepted trajectories"),
    ({"n": 10**400}, "should be less than or equal to 1000000000000: number of"),
    ({"concurrency": 0}, "concurrency is 0; expected 'auto', or a whole number from 1 to 100,000"),
    ({"max_turns": 0}, "max_turns is 0"),
    ({"play": "alone"}, "play is 'alone'; expected one of 'live', 'narrated', 'grounded'"),
    ({"seed": 2**64}, "seed is 18446744073709551616; should be less than or equal to 18446744073709551615"),
    ({"seed": -(2**63) - 1}, "should be greater than or equal to -9223372036854775808: seed of the run"),
    ({"seed": True}, "seed is True"),
    ({"mistakes": "naturl"}, "mistakes is 'naturl'; expected one of: spread, spread=2"),
    (
        {"mistakes": 2},
        "mistakes is 2; should be a valid dictionary or instance of Mistakes: policy for mistakes: spread",
    ),
    (
        {"attempts": 4},
        "attempts is 4; should be a valid dictionary or instance of Attempts: attempts per persona, any of",
    ),
    ({"rules": 5}, "rules is 5; expected a rule or its text"),
    ({"script_rules": "strict("}, "strict"),
    ({"backend": "rehearsall"}, "rehearsal"),
    ({"personas": "nobody.jsonl"}, "there is no file 'nobody.jsonl'"),
    ({"personas": []}, "no personas"),
    ({"personas": ["", " "]}, "none of the 2 rows"),
    ({"prompts": "nowhere"}, "nowhere"),
    ({"early_stop": -1}, "early_stop is -1; should be greater than or equal to 0"),
    ({"workers": 0}, "workers is 0"),
    ({"judge": "perhaps"}, "judge is 'perhaps'"),
    ({"deadline": 0}, "deadline is 0"),
    ({"branches": 10**9}, "branches is 1000000000"),
    ({"player_form": "xml"}, "player_form is 'xml'"),
    ({"player_form": "tools", "play": "narrated"}, "nobody plays turn by turn"),
    ({"match": "lenient", "play": "narrated"}, "match is 'lenient', and nobody plays turn by turn"),
    ({"match": "loose"}, "match is 'loose'"),
    ({"budget": "5"}, "20Mtok"),
    ({"grounding": Grounding()}, "it is for play='grounded' alone"),
    ({"play": "grounded", "grounding": "terse"}, "should be a valid dictionary or instance of G"),
]
"""Arguments that cannot be used, and what is said of them."""


async def test_what_cannot_be_used_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong, message in WRONG:
        asked: dict[str, Any] = {"personas": people(3), "output": "run", **wrong}
        with pytest.raises(InputError, match=message):
            await synthesize(**asked)
        assert names(tmp_path) == [], wrong


async def test_episodes_with_several_trajectories_do_not_hide_those_without(tmp_path: Path, acts: Acts) -> None:
    acts([Fate(gives=3), Fate(accepted=False, refusals=("TurnLimit",))])
    result = await synthesize(people(2), 9, output=tmp_path / "run")
    assert "3 of 9 trajectories were accepted" in (result.shortfall or "")
    assert "1 of 2 episodes gave none" in (result.shortfall or "")


async def test_personas_that_run_out_are_said(tmp_path: Path, acts: Acts) -> None:
    acts(FATES)
    result = await synthesize([*people(4), ""], 9, output=tmp_path / "run")
    assert not result.reached
    assert result.bad_personas == 1
    assert result.shortfall == (
        "3 of 9 trajectories were accepted: an iterable (list) ran out after 4 personas. 1 of 4 episodes gave none, most "
        "refusals by TurnLimit. 1 rows of the source are no personas."
    )
    skipped = [(event["line"], event["reason"]) for event in events(tmp_path / "run", "persona_skipped")]
    assert skipped == [(5, "is blank")]
    last = events(tmp_path / "run")[-1]
    assert (last["event"], last["why"]) == ("run_ended", "personas_ran_out")


async def test_a_resume_with_other_settings_is_refused_and_with_another_connection_taken(
    tmp_path: Path, acts: Acts
) -> None:
    acts(FATES)
    await synthesize(people(50), 1, Backend(model="rehearsal", timeout=10), output=tmp_path / "run")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"play": "narrated"}, 'play: "live" -> "narrated"'),
        ({"rules": "agentrefine()"}, "rules: "),
        ({"script_rules": "ActionCount()"}, "script_rules: "),
        ({"mistakes": natural()}, 'mistakes.policy: "spread" -> "natural"'),
        ({"max_turns": 9}, "max_turns: "),
        ({"judge": True}, "judge: false -> true"),
        ({"backend": "rehearsal:invalid_json=0.5"}, "models.player.model: "),
    ]
    for change, field in changes:
        with pytest.raises(RunFolderError) as caught:
            await synthesize(people(50), 2, output=tmp_path / "run", **change)
        assert field in str(caught.value)
    second = Backend(model="rehearsal", timeout=20, requests_per_minute=6000)
    assert (await synthesize(people(50), 2, second, output=tmp_path / "run")).reached


class Plain(BaseRule):
    """A rule whose repr holds an address."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        yield from ()


async def test_rules_are_objects_or_text(tmp_path: Path, acts: Acts) -> None:
    acts(FATES)
    by_text = await synthesize(people(5), 1, output=tmp_path / "text", rules="strict()")
    by_default = await synthesize(people(5), 1, output=tmp_path / "default")
    assert by_text.config.rules == by_default.config.rules == repr(strict())
    own = await synthesize(people(5), 1, output=tmp_path / "own", rules=Plain())
    assert " at 0x" not in own.config.rules
    assert (await synthesize(people(5), 2, output=tmp_path / "own", rules=Plain())).reached


async def test_no_secret_is_in_any_file(tmp_path: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    acts(FATES)
    extra: Mapping[str, Any] = {"extra_headers": {"X-Team": canary}, "stop": [f"Bearer {canary}", 5]}
    backend = Backend(model="gpt-4o", temperature=0.5, extra=extra)

    async def call(**_: object) -> object:
        raise AssertionError("nothing is asked")

    result = await synthesize(people(5), 1, backend, output=tmp_path / "run", call=call)
    assert canary.encode() not in b"".join(path.read_bytes() for path in result.path.iterdir())
    player: Any = result.config.models["player"]
    assert player["temperature"] == 0.5
    assert player["extra"] == {"extra_headers": {"X-Team": "***"}, "stop": ["Bearer ***", 5]}
    assert result.config.versions.keys() == {"refinesynth", "python", "pydantic-ai-slim", "litellm"}


@pytest.mark.process
def test_importing_brings_neither_pydantic_ai_nor_litellm() -> None:
    script = (
        "import sys, refinesynth.synthesis; "
        "print(sorted({'pydantic_ai', 'litellm', 'jinja2', 'datasets', 'pyarrow', 'structlog', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"
