"""A replay answers from a journal what was asked before, and nothing else."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from refinesynth.backends import Backend, Role, resolve, resolve_roles
from refinesynth.backends.names import recorded_run
from refinesynth.client import open_models
from refinesynth.client.replay import Replay
from refinesynth.client.session import Session
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, RunStopped
from refinesynth.personas import shipped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.run import RunFolder
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import at_least
from refinesynth.synthesis import SynthesisResult, synthesize

PEOPLE = shipped()[:12]


async def recorded(path: Path, backend: Any = "openai/any", *, n: int = 4, **asked: Any) -> tuple[SynthesisResult, int]:
    """A run, and how many completions it asked for."""
    count, rehearsal = Counter[str](), Rehearsal(faults=Faults(no_success=0.3, too_few_errors=0.3, invalid_json=0.1))

    async def call(**request: Any) -> object:
        count["asked"] += 1
        return await rehearsal(**request)

    given: dict[str, Any] = {"mistakes": at_least(2), **asked}
    return await synthesize(PEOPLE, n, backend, output=path, call=call, **given), count["asked"]


async def replayed(path: Path, folder: Path, *, n: int = 4, **asked: Any) -> SynthesisResult:
    """A run that nothing but a journal can answer: there is no key, and no server."""
    given: dict[str, Any] = {"mistakes": at_least(2), **asked}
    return await synthesize(PEOPLE, n, f"replay:{folder}", output=path, **given)


@pytest.mark.long
@pytest.mark.parametrize(
    ("play", "model"),
    # Asked for a native schema, by a tool call, and in words.
    [
        ("live", "openai/gpt-4o"),
        ("narrated", "openai/gpt-4o"),
        ("live", "deepseek/deepseek-chat"),
        ("narrated", "openai/any"),
    ],
)
async def test_a_replay_gives_the_same_trajectories_for_free(tmp_path: Path, play: Any, model: str) -> None:
    mode = "prompted" if model.endswith("any") else "auto"
    first, asked = await recorded(tmp_path / "first", Backend(model=model, output_mode=mode), play=play)  # pyright: ignore[reportArgumentType]
    second = await replayed(tmp_path / "second", first.path, play=play)
    assert second.reached
    assert (second.cost_usd, second.usage) == (0, first.usage)
    assert second.usage.requests == asked
    for one, other in zip(first, second, strict=True):
        assert (one.turns, one.script) == (other.turns, other.script)
        assert one.provenance.models == other.provenance.models
    assert [(item.script, item.draft, item.violations) for item in first.rejected] == [
        (item.script, item.draft, item.violations) for item in second.rejected
    ]
    # What was replayed can be replayed.
    third = await replayed(tmp_path / "third", second.path, play=play)
    assert [found.turns for found in third] == [found.turns for found in first]


@pytest.mark.long
async def test_other_rules_are_tried_on_what_was_paid_for(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first", play="narrated")
    assert first.drafts_refused
    lax = await replayed(tmp_path / "lax", first.path, play="narrated", rules="ReadableText()", n=3)
    assert lax.reached
    assert lax.usage.requests < first.usage.requests
    strict = await replayed(tmp_path / "strict", first.path, play="narrated", rules="TurnLimit(most=1)")
    assert len(strict) == 0
    assert strict.by_rule["TurnLimit"] > 0
    reasons = [str(line.reason) for line in RunFolder.open(strict.path).episodes()]
    # Nobody is there to try again.
    assert any("has no answer to request" in reason for reason in reasons)


@pytest.mark.long
async def test_other_bounds_are_tried_on_what_was_paid_for(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first", play="narrated", attempts=Attempts(drafts=4))
    late = {found.id for found in first if found.provenance.attempts > 2}
    fewer = await replayed(tmp_path / "fewer", first.path, play="narrated", attempts=Attempts(drafts=2), n=len(PEOPLE))
    assert late
    assert len(fewer) > 0
    assert not late & {found.id for found in fewer}
    assert all(found.provenance.attempts <= 2 for found in fewer)


@pytest.mark.long
async def test_one_role_alone_can_be_replayed(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first")
    backend = {"default": f"replay:{first.path}", "script_writer": f"replay:{first.path}"}
    second = await synthesize(PEOPLE, 4, backend, output=tmp_path / "second", mistakes=at_least(2))
    assert [found.turns for found in second] == [found.turns for found in first]


@pytest.mark.long
async def test_another_seed_or_other_personas_are_said(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first", play="narrated", n=1)
    for asked in ({"seed": 5}, {"personas": ["Somebody", "Somebody else", "Nobody", "Everybody"]}):
        arguments: dict[str, Any] = {"personas": PEOPLE, "play": "narrated", "concurrency": 1, **asked}
        with pytest.raises(RunStopped, match=r"knows nothing of episode .* its seed, 0; none of the first 3 episodes"):
            await synthesize(n=4, backend=f"replay:{first.path}", output=tmp_path / repr(asked), **arguments)


async def test_episodes_beyond_those_recorded_are_given_up(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first", play="narrated", n=1)
    known = len(list(RunFolder.open(first.path).episodes()))
    second = await replayed(tmp_path / "second", first.path, play="narrated", n=9, concurrency=1)
    assert 1 <= len(second) < 9
    reasons = [line.reason for line in RunFolder.open(second.path).episodes()]
    assert all("knows nothing of episode" in str(reason) for reason in reasons[known + 1 :])


async def test_requests_of_no_episode_are_refused(tmp_path: Path) -> None:
    first, _ = await recorded(tmp_path / "first", n=1)
    with pytest.raises(EpisodeAbandoned, match="belongs to none"):
        await Replay(first.path)(model="any", messages=[])


async def test_what_is_asked_has_the_form_of_the_recorded_run(tmp_path: Path) -> None:
    backend = Backend(model="openai/any", base_url="http://127.0.0.1:9/v1", output_mode="tool", temperature=0.5)  # pyright: ignore[reportArgumentType]
    first, _ = await recorded(tmp_path / "first", backend, n=1)
    again = recorded_run(first.path, Role.PLAYER).backend(Role.PLAYER)
    assert (again.output_mode, again.base_url, again.temperature) == ("tool", backend.base_url, 0.5)
    model = open_models({Role.PLAYER: resolve(f"replay:{first.path}")})[Role.PLAYER]
    assert model.model_name == "openai/any"
    with pytest.raises(ConfigurationError, match=r"no answers of the narrator, only of script_writer, "):
        recorded_run(first.path, Role.NARRATOR)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no run to replay: config.json cannot be read"),
        ({"config.json": b"{}"}, "config.json is not a run's: seed: Field required"),
        ({"config.json": b'{"seed": 0, "models": {}, "connections": {}}'}, "that run has no journal"),
    ],
)
def test_what_is_no_run_is_refused_by_name(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        resolve_roles(f"replay:{tmp_path}")
    with pytest.raises(ConfigurationError, match="name the folder of the run to replay"):
        resolve("replay: ")


def test_replays_that_go_round_in_circles_are_noticed(tmp_path: Path) -> None:
    config: dict[str, Any] = {"seed": 0, "connections": {}, "models": {"player": {"model": f"replay:{tmp_path}"}}}
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    (tmp_path / "journal.sqlite").touch()
    with pytest.raises(ConfigurationError, match="round in circles"):
        recorded_run(tmp_path, Role.PLAYER)
    config["models"] = {"player": {"model": ""}}
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    with pytest.raises(ConfigurationError, match="backend cannot be read"):
        recorded_run(tmp_path, Role.PLAYER)


def test_what_is_remembered_goes_with_the_episode(tmp_path: Path) -> None:
    config: dict[str, Any] = {"seed": 0, "connections": {}, "models": {}}
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    from refinesynth.journal import Journal

    journal = Journal(tmp_path / "journal.sqlite")
    journal.close()
    replay = Replay(tmp_path)
    session = Session(id="000000-x", seed=0)
    with pytest.raises(EpisodeAbandoned, match="knows nothing of episode 000000-x"):
        replay._record_of(session)  # pyright: ignore[reportPrivateUsage]
    assert replay._records == {}  # pyright: ignore[reportPrivateUsage]
