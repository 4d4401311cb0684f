"""The table of plays: what comes with the package, and plays that other packages register."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage import settings_for
from typer.testing import CliRunner

import refinesynth as rs
from refinesynth.backends.backend import Role
from refinesynth.cli.app import app
from refinesynth.episode import Play, plays
from refinesynth.errors import InputError, RunFolderError
from refinesynth.prompts import Prompts
from refinesynth.prompts.prompt_library import SECTIONS, SUFFIX
from refinesynth.run import RunFolder
from refinesynth.settings.grounding import Grounding

PERSONAS = ["A lighthouse keeper who restores clocks.", "A nurse on the night shift."]
PAGE = Path(__file__).parents[2] / "docs" / "plays.md"


MORE = """
UPPER = Mixed()
UPPER.name = "Upper"


class Careless(Mixed):
    name = "careless"

    async def play(self, cast, script, start=()):
        return await narrator_of(cast).tell(script, start)


class Idle(Mixed):
    name = "idle"

    async def play(self, cast, script, start=()):
        return None


CARELESS, IDLE = Careless(), Idle()
"""


def test_what_comes_with_the_package() -> None:
    assert {"live", "narrated", "grounded"} <= set(plays.PLAYS.entries())
    for name in plays.PLAYS.entries():
        assert plays.find(name).name == name
        assert plays.find(name) is plays.find(name)
        assert plays.find(name).__doc__
    assert plays.find("grounded").executed
    assert not plays.find("live").executed
    assert not plays.find("narrated").executed


@pytest.mark.parametrize(
    ("play", "given", "voices"),
    [
        ("live", {}, (Role.DUNGEON_MASTER, Role.PLAYER)),
        ("narrated", {"grounding": Grounding(terse=True)}, (Role.NARRATOR,)),
        ("grounded", {}, (Role.DUNGEON_MASTER, Role.PLAYER)),
        ("grounded", {"grounding": Grounding(terse=True)}, (Role.PLAYER,)),
    ],
)
def test_the_roles_that_a_play_asks(play: str, given: dict[str, bool], voices: tuple[Role, ...]) -> None:
    asked = plays.find(play).roles
    assert asked(settings_for(play, **given)) == (Role.SCRIPT_WRITER, *voices)
    assert asked(settings_for(play, judge=True, **given)) == (Role.SCRIPT_WRITER, *voices, Role.JUDGE)


@pytest.mark.parametrize("template", sorted({*SECTIONS} - {"turn_judge"}))  # an audit's, which is no run
def test_no_template_can_change_without_the_digest_of_a_play(template: str, tmp_path: Path) -> None:
    shipped = Prompts()
    source = (Path(rs.__file__).parent / "prompts" / "templates" / f"{template}{SUFFIX}").read_text()
    (tmp_path / f"{template}{SUFFIX}").write_text(f"{{# another one #}}{source}")
    own = Prompts(tmp_path)
    of_plays = [(plays.find(name).digest(own), plays.find(name).digest(shipped)) for name in plays.PLAYS.entries()]
    # Runs whose repairer is a model, or with tools, read one more.
    more = "player_repair", "given_tools", "tool_server"
    beside = [(own.digest_plus("", name), shipped.digest_plus("", name)) for name in more]
    assert any(one != other for one, other in [*of_plays, *beside])


@pytest.mark.parametrize("name", ["nosuch", "Live", "", "live ", 7, None, ["live"]])
def test_an_unknown_play_is_told_which_there_are(name: object) -> None:
    with pytest.raises(InputError, match="expected one of 'live', 'narrated', 'grounded'"):
        plays.PLAYS.entry(name)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("play", ["live", "narrated"])
async def test_settings_of_executed_worlds_are_for_such_plays_alone(play: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"grounding is given, and play is '{play}'"):
        await rs.synthesize(PERSONAS, n=1, play=play, grounding=Grounding(), output=tmp_path / "run")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that registers plays, as pip would leave it; one of them is that of docs/plays.md."""
    metadata = tmp_path / "their_plays-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plays\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[refinesynth.plays]\n"
        "mixed = their_plays:MIXED\n"
        "another = their_plays:MIXED\n"
        "class = their_plays:Mixed\n"
        "Upper = their_plays:UPPER\n"
        "careless = their_plays:CARELESS\n"
        "idle = their_plays:IDLE\n"
        "gone = no_such_module_anywhere:PLAY\n"
        "broken = their_broken_plays:PLAY\n"
        "live = their_plays:MIXED\n"
    )
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "their_plays.py").write_text(f"{found[1]}{MORE}")
    (tmp_path / "their_broken_plays.py").write_text("raise RuntimeError('broken on import')\n")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    yield
    plays.find.cache_clear()


@pytest.mark.usefixtures("installed")
class TestEntryPoints:
    def test_they_are_named_beside_those_of_the_package(self) -> None:
        assert tuple(plays.PLAYS.entries())[: len(plays.BUILT_IN)] == tuple(plays.BUILT_IN)
        assert "mixed" in plays.PLAYS.entries()
        assert isinstance(plays.find("mixed"), Play)

    def test_built_in_names_stay_built_in(self) -> None:
        assert plays.find("live").voices(settings_for("live")) == (Role.DUNGEON_MASTER, Role.PLAYER)
        assert [*plays.PLAYS.entries()].count("live") == 1

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("gone", "cannot be loaded from 'no_such_module_anywhere:PLAY'"),
            ("broken", "broken on import"),
            ("class", "an object of Play of this name"),
            ("another", "an object of Play of this name"),
            ("Upper", re.escape("an object of Play of this name, which matches ^[a-z][a-z0-9_-]{0,63}$, is expected")),
            ("nosuch", "'grounded', 'Upper', 'another', 'broken', 'careless', 'class', 'gone', 'idle', 'mixed'"),
        ],
    )
    def test_broken_ones_are_told(self, name: str, said: str) -> None:
        with pytest.raises(InputError, match=said):
            plays.find(name)

    @pytest.mark.long
    @pytest.mark.usefixtures("local_ray")
    async def test_one_is_played_recorded_and_gone_on_with(self, tmp_path: Path) -> None:
        where = tmp_path / "run"
        first = await rs.synthesize(n=2, play="mixed", seed=1, output=where)
        result = await rs.synthesize(n=6, play="mixed", seed=1, output=where)
        assert (first.ended, result.ended) == (None, None)
        trajectories = list(result)
        assert len(trajectories) == 6
        asked = {role for one in trajectories for role in one.provenance.models}
        assert asked == {"script_writer", "narrator", "dungeon_master", "player"}
        assert {one.provenance.play for one in trajectories} == {RunFolder.open(where).config.play} == {"mixed"}
        again = await rs.synthesize(n=6, play="mixed", seed=1, workers=2, output=tmp_path / "again")
        assert (again.path / "trajectories.jsonl").read_bytes() == (where / "trajectories.jsonl").read_bytes()
        with pytest.raises(RunFolderError, match='play: "mixed" -> "live"'):
            await rs.synthesize(n=7, seed=1, output=where)

    async def test_what_was_not_verified_is_not_kept(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="the play 'careless' gave a draft that its verifier did not accept"):
            await rs.synthesize(n=1, play="careless", output=tmp_path / "run")
        assert (tmp_path / "run" / "trajectories.jsonl").read_bytes() == b""

    async def test_a_play_that_gives_nothing_says_so(self, tmp_path: Path) -> None:
        result = await rs.synthesize(PERSONAS, n=1, play="idle", output=tmp_path / "run")
        assert len(list(result)) == 0
        lines = [*RunFolder.open(result.path).episodes()]
        assert {line.reason for line in lines} == {"the play gave no draft, and left none that was refused"}

    def test_the_command_line_names_and_plays_them(self, tmp_path: Path) -> None:
        refused = CliRunner().invoke(app, ["run", "-n", "1", "--play", "loud"])
        assert "one of 'live', 'narrated', 'grounded', 'Upper', 'another'" in refused.output
        where = str(tmp_path / "run")
        assert CliRunner().invoke(app, ["run", "-n", "1", "--play", "mixed", "-o", where]).exit_code == 0
        assert "narrator" in CliRunner().invoke(app, ["show", where], env={"COLUMNS": "300"}).output


@pytest.mark.long
@pytest.mark.usefixtures("installed")
async def test_a_run_is_read_where_its_play_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "run"
    await rs.synthesize(n=2, play="mixed", output=where)
    monkeypatch.undo()
    plays.find.cache_clear()
    assert "mixed" not in plays.PLAYS.entries()
    for command in (["status", str(where)], ["show", str(where)], ["verify", str(where)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    exported = CliRunner().invoke(app, ["export", str(where), "--format", "openai", "-o", str(tmp_path / "out.jsonl")])
    assert exported.exit_code == 0, exported.output
    with pytest.raises(InputError, match="play is 'mixed'; expected one of"):
        await rs.synthesize(n=3, play="mixed", output=where)
