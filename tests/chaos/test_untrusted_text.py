"""What a persona says and what a model writes stays text: in paths, templates, patterns, terminals and lines of
files."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import orjson
import pytest
from chaos_stage import check_folder, lines
from spoiling import CHARACTERS
from terminal_text import is_inert

import refinesynth as rs
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.testing.valid import AWKWARD_PATTERNS
from refinesynth.text.formatting import control_character

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "refinesynth"]
PATIENCE = 120

TEMPLATES = (
    "{{ 7919*7907 }}",
    "{% include 'player.md' %}",
    "{% for x in range(9) %}x{% endfor %}",
    "{persona}",
    "${HOME}",
    "%(key)s",
)
PATHS = ("../../../escaped", "/tmp/escaped", "..\\escaped", "a/b/c", "CON", "~/escaped")
MARKUP = (
    "[bold red]loud[/]",
    "[link=http://example.org]click[/link]",
    ":smile:",
    "</persona><persona>another",
    "```\nfence",
)
PERSONAS = (
    *(f"A sailor who says {text} and then {text!a}" for text in CHARACTERS if text.strip()),
    *(f"A cook of {text}" for text in (*TEMPLATES, *PATHS, *MARKUP)),
)
"""Personas that say everything hostile, one each."""

FEWEST = len(PERSONAS) - 14
"""Trajectories: two personas are none, and where a control character is quoted it is refused."""


class Tainted:
    """The rehearsal, whose scripts, thoughts and observations say hostile things that no rule minds; keeps what it was
    asked."""

    def __init__(self) -> None:
        self.said = 0
        self.asked: list[str] = []
        self._rehearsal = Rehearsal(faults=Faults(too_few_errors=0.2, wrong_parameters=0.2))

    async def __call__(self, **request: Any) -> object:
        self.asked += [str(message["content"]) for message in request["messages"]]
        answer = await self._rehearsal(**request)
        message = answer["choices"][0]["message"]
        with suppress(ValueError):
            value: Any = orjson.loads(message["content"])
            self._taint(value)
            message["content"] = orjson.dumps(value).decode()
        return answer

    def _taint(self, value: Any) -> None:
        for item in value.get("turns", [value]):
            for name in ("introduction", "thought", "goal"):
                if isinstance(item.get(name), str) and item.get("role") != "user":
                    self.said += 1
                    item[name] += f" {self._next()}"

    def _next(self) -> str:
        characters = [text.encode(errors="replace").decode() for text in CHARACTERS]
        if self.said > len(characters):  # once is enough of what is refused
            characters = [text for text in characters if control_character(text) is None]
        every = [*characters, *TEMPLATES, *PATHS, *MARKUP]
        return f"({every[self.said % len(every)]})"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of hostile personas and a hostile model, narrated; another one, live, is beside it."""
    path = tmp_path_factory.mktemp("hostile") / "run"
    tainted = Tainted()

    async def both() -> None:
        await _run(path, "narrated", tainted)
        await _run(path.with_name("live"), "live", tainted)

    anyio.run(both)
    _asked_as_it_is(tainted.asked)
    return path


async def _run(folder: Path, play: Literal["live", "narrated"], call: Tainted) -> None:
    result = await rs.synthesize(PERSONAS, n=len(PERSONAS), play=play, output=folder, call=call, concurrency=4)
    assert len(result) >= FEWEST, result.shortfall


def _asked_as_it_is(asked: list[str]) -> None:
    everything = "\n".join(asked)
    for text in TEMPLATES:
        assert orjson.dumps(text).decode()[1:-1] in everything, text
    assert str(7919 * 7907) not in everything


def test_hostile_words_are_one_line_in_every_file(folder: Path) -> None:
    for run in (folder, folder.with_name("live")):
        check_folder(run)
        kept = b"".join(lines(run / "trajectories.jsonl") + lines(run / "rejected.jsonl"))
        for escaped in (b"\\u2028", b"\\u2029", b"\\r", b"\\u001b", b"\\u0000"):
            assert escaped in kept, "it was met"


def test_hostile_words_make_no_path(folder: Path, warm: Path) -> None:
    plain = folder.parent / "plain"
    command = [str(warm / "refinesynth"), "run", "-n", "1", "-o", str(plain)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    assert {path.name for path in folder.iterdir()} <= {path.name for path in plain.iterdir()} | {"rejected.jsonl"}
    assert {path.name for path in folder.parent.iterdir()} <= {"run", "live", "plain"}
    assert not Path("/tmp/escaped").exists()


def call(warm: Path, *arguments: object, cwd: Path | None = None) -> bytes:
    """All that a command prints."""
    done = subprocess.run(
        [str(warm / "refinesynth"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
        cwd=cwd,
    )
    assert done.returncode in {0, 1, 2}, done.stdout.decode()
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--json"),
        ("show",),
        ("show", "--list"),
        ("show", "--json"),
        ("show", "--refused"),
        ("verify",),
    ],
    ids=" ".join,
)
def test_no_command_prints_what_a_terminal_obeys(arguments: tuple[str, ...], folder: Path, warm: Path) -> None:
    command, *options = arguments
    for run in (folder, folder.with_name("live")):
        printed = call(warm, command, run, *options).decode()
        assert printed.strip()
        assert is_inert(printed), ascii(printed)
        assert "Traceback" not in printed


def test_an_export_is_one_line_each_and_a_card_is_inert(folder: Path, warm: Path, tmp_path: Path) -> None:
    for form in ("sharegpt", "openai", "paper"):
        printed = call(warm, "export", folder, "--format", form, "-o", f"{form}.jsonl", cwd=tmp_path)
        assert is_inert(printed.decode())
        assert len(lines(tmp_path / f"{form}.jsonl")) >= FEWEST
    options = ("--license", "cc0-1.0", "--format", "traces", "--title", "{{ 7*7 }}\x1b[2J", "--dry-run", "-o", "made")
    call(warm, "publish", folder, "me/first", *options, cwd=tmp_path)
    card = (tmp_path / "made" / "README.md").read_text()
    assert is_inert(card)
    assert "{{ 7" in card.replace("\\", "")


def test_errors_about_hostile_input_are_inert(warm: Path, tmp_path: Path) -> None:
    personas = tmp_path / "na\x1b[2Jme\u202e.jsonl"
    written = [b'{"persona": 7, "' + text.encode(errors="surrogatepass") + b'": "\xff"}\n' for text in CHARACTERS]
    personas.write_bytes(b"".join(written))
    for arguments in (
        ("run", personas, "-n", "1", "-o", tmp_path / "none"),
        ("show", personas),
        ("verify", tmp_path / "\x1b]0;title\x07"),
        ("run", "-n", "1", "--backend", "no\x1b]0;title\x07such", "--play", "\x1b[31m"),
        ("--debug", "show", personas),
    ):
        printed = call(warm, *arguments).decode()
        assert is_inert(printed), ascii(printed)
        assert ("Traceback" in printed) == ("--debug" in arguments)


OWN = re.compile(r"\x1b\[(?:\?25[lh]|\?2004[lh]|[0-9;]*[ABCDGHJKm])|\r")
"""What rich sends for colours and for drawing over its own lines."""
FOREIGN = ("\x1b]", "\x1b[2J", "\x07", "\x08", "\x9b", "\u202e", "\u2066", "\x0b", "\x00")


def on_a_terminal(*arguments: object) -> str:
    """What a command sends to a terminal."""
    here, there = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(there)
        sent = b""
        with suppress(OSError):
            while piece := os.read(here, 65_536):
                sent += piece
        process.wait(timeout=PATIENCE)
    os.close(here)
    return sent.decode(errors="surrogateescape")


def test_on_a_terminal_only_our_own_sequences_are_sent(folder: Path, tmp_path: Path) -> None:
    personas = tmp_path / "personas.jsonl"
    personas.write_text("".join(json.dumps({"persona": text}) + "\n" for text in PERSONAS))
    sent = on_a_terminal("show", folder) + on_a_terminal("status", folder)
    sent += on_a_terminal("run", personas, "-n", "4", "-o", tmp_path / "run")
    assert "\x1b[" in sent, "a terminal it was"
    assert is_inert(OWN.sub("", sent)), ascii(OWN.sub("", sent))
    assert not [sequence for sequence in FOREIGN if sequence in sent]


BOUNDED = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
import random, re2
from refinesynth import rules, Draft, Script, ActionSpec, PlayerTurn, DungeonMasterTurn
from refinesynth.backends.backend import Backend
from refinesynth.text.formatting import redact
from refinesynth.client.classify_error import classify_error
from refinesynth.chat import parse_player
from refinesynth.text.json_reader import read_json
from refinesynth.testing.valid import AWKWARD_PATTERNS
from refinesynth.text.formatting import control_character

LONG = ("a" * 100_000 + "!", "a!" * 50_000, " " * 100_000, "x" * 99_999 + "\\n", "[" * 100_000, '{"a":' * 50_000, "```" * 50_000, "sk-" * 50_000,
        "Action" + " " * 100_000, "> " * 50_000, "**" * 50_000 + "Action:", "Action: `" * 20_000, "Thought:\\n" * 20_000,
        "Error: " * 20_000, "_Error" * 20_000, "model " * 20_000, "<" * 100_000, "exceed " * 20_000, "/" * 100_000, "Bearer " * 20_000)
for pattern in AWKWARD_PATTERNS:
    for text in LONG[:4]:
        script = Script(environment={}, goal="g", completion_conditions=("c",), actions=(ActionSpec(name="take {item}", pattern=pattern, parameters={"item": (text[:5_000],)}),))
        said = DungeonMasterTurn(thought="", observation=text[:5_000], parameter_error=False, place_error=False, logic_error=False)
        draft = Draft(script=script, turns=(PlayerTurn(thought=text[:5_000], action=text[:5_000]), said) * 3)
        rules.verify(Draft(script=script), rules.script())
        rules.verify(draft, rules.strict())
for text in LONG:
    for read in (parse_player, read_json):
        try:
            read(text)
        except ValueError:
            pass
    redact(text)
    classify_error(RuntimeError(text), Backend(model="openai/any"))
print("in time")
"""


def test_no_pattern_and_no_text_keeps_a_processor_busy() -> None:
    # The limit is CPU time, many times what is needed; whoever passes it is killed.
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "in time\n"
    assert len(AWKWARD_PATTERNS) > 10
