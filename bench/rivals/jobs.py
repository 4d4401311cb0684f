"""The jobs: so many completions in Bespoke Curator, in NeMo Data Designer, and in a run of refinesynth."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.recording import MODEL, people, record
from bench.server import Answers, Canned, completion

VENVS = Path(".bench-venvs")
"""Where the neighbours are installed, in the folder that the programs are run in."""
CONCURRENCY = 256

_HERE = Path(__file__).parent
_SENTENCE = "Somebody who looks after the machines at the harbour and counts the birds on the roof."


@dataclass(frozen=True, kw_only=True)
class Job:
    """Completions, as a command that goes on where it was killed."""

    name: str
    completions: int
    results: int
    """What is to come out of it."""
    answers: Answers
    """What its server says."""
    command: Callable[[str, Path, bool], Sequence[str | Path]]
    """From the server, the folder to work in, and whether one completion is enough, to what is typed."""
    made: Callable[[Path, str], int]
    """From the folder and what the command printed to how many results there are."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of its process, beside those of ours."""
    missing: str | None = None
    """Why it cannot be run here."""
    is_ours: bool = False


def neighbour(name: str, short: str, *, completions: int) -> Job:
    """One that is installed in an environment `short` of its own; its limits are raised to `CONCURRENCY`."""
    venv = (VENVS / short).absolute()
    python = venv / "bin" / "python"
    # Its caches stay in its folder, it counts tokens with the table that litellm ships, and tells nobody.
    tables = next(venv.glob("lib/*/site-packages/litellm/litellm_core_utils/tokenizers"), venv)
    own = {"HOME": str(venv), "TIKTOKEN_CACHE_DIR": str(tables), "OPENAI_API_KEY": "none"}
    quiet = {"TELEMETRY_ENABLED": "false", "HF_HUB_OFFLINE": "1", "NEMO_TELEMETRY_ENABLED": "false"}

    def command(base_url: str, folder: Path, only_one: bool) -> Sequence[str | Path]:
        return (python, _HERE / f"{short}_job.py", base_url, folder / "job", str(1 if only_one else completions))

    return Job(
        name=name,
        completions=completions,
        results=completions,
        answers=Canned(completion(_SENTENCE), digests=True),
        command=command,
        made=_printed,
        environment={**own, **quiet},
        missing=None if python.exists() else "not installed: python -m bench.rivals.setup",
    )


def our_calls(*, completions: int) -> Job:
    """The same prompts, through refinesynth's model and its journal, without anything around them."""

    def command(base_url: str, folder: Path, only_one: bool) -> Sequence[str | Path]:
        return (sys.executable, _HERE / "calls_job.py", base_url, folder / "job", str(1 if only_one else completions))

    return Job(
        name="refinesynth, model and journal",
        completions=completions,
        results=completions,
        answers=Canned(completion(_SENTENCE), digests=True),
        command=command,
        made=_printed,
        is_ours=True,
    )


def our_run(folder: Path, *, completions: int) -> Job:
    """A narrated run with about so many; its list of personas lies in `folder`.

    Each episode asks for a script and a trajectory, checks both, and asks again where they are refused.
    """
    personas = people(round(completions / 2.45))
    listed = folder / "personas.txt"
    listed.write_text("".join(f"{persona}\n" for persona in personas), encoding="utf-8")
    recording = record(personas, play="narrated")

    def command(base_url: str, folder: Path, only_one: bool) -> Sequence[str | Path]:
        # More than there are personas, so that all of them are played.
        n = 1 if only_one else len(personas) + 1
        run = (sys.executable, "-m", "refinesynth", "run", listed, "-n", str(n), "--play", "narrated")
        backend = ("--backend", MODEL, "--set", f"base_url={base_url}", "--concurrency", str(CONCURRENCY))
        return (*run, *backend, "-o", folder / "run")

    return Job(
        name="refinesynth, narrated run",
        completions=recording.completions,
        results=recording.accepted,
        answers=recording.answers,
        command=command,
        made=lambda folder, _printed: len((folder / "run" / "trajectories.jsonl").read_bytes().splitlines()),
        is_ours=True,
    )


def _printed(_folder: Path, printed: str) -> int:
    return int(printed.splitlines()[-1])
