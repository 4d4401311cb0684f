"""Plays on which the arms are trained, and the starts from which they are tested.

All are runs of the package: the rehearsal plays grounded worlds, and only what the default rules accept is kept. Every
arm of a seed has the same worlds in the same order.
"""

import gzip
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import orjson

import refinesynth as rs
from refinesynth.chat import parse_player, render_player, to_messages
from refinesynth.rehearsal import Rehearsal
from refinesynth.rehearsal.injected_faults import Draws, Faults
from refinesynth.rehearsal.injected_mistakes import InjectedMistake
from refinesynth.rehearsal.openai_wire import Request, completion
from refinesynth.rehearsal.phrasing import infinitive
from refinesynth.rehearsal.player import inferred_history, is_task, mistaken_turn
from refinesynth.rehearsal.replayed_history import Exchange, History, initial_position
from refinesynth.rehearsal.scene import label_in
from refinesynth.rehearsal.search_plan import plan_of
from refinesynth.settings.grounding import Mix
from refinesynth.settings.mistakes import Mistakes, prompted, spread
from refinesynth.trajectory import MistakeKind, PlayerTurn, ScriptedPersona, Trajectory

KEPT = "panel"
"""The family of worlds whose mistakes no arm sees: it occurs in clean plays alone."""
TUNED = ("household", "office", "laboratory", "service")
"""Families in which every place can be reached from every other in one action."""
DEPTHS = (0, 1, 2)
"""Player's turns, from 0, of the imposed mistakes."""
_CLEAN = spread(clean=1.0)
_GROUNDING = rs.Grounding(terse=True, difficulty=(4, 6), mix=Mix(hidden=0.0))
"""Worlds of the shortest solutions that the rehearsal draws, most of which tell where things are."""
_SEARCHED = "Nobody has told you where things are"
"""In the introductions of the others."""


class Sizes(NamedTuple):
    """Sizes of the experiment; results of other sizes do not compare."""

    plays: int = 128
    """Of each arm, the kept family's included."""
    kept: int = 16
    """Of these, clean plays of the kept family."""
    worlds: int = 16
    """Held-out worlds of the tuned families, each with an own, an imposed and a clean start."""
    kept_worlds: int = 8
    """Held-out worlds of the kept family, each with an imposed and a clean start."""


SIZES: Mapping[str, Sizes] = {
    "experiment": Sizes(),
    "large": Sizes(plays=480, kept=48, worlds=64, kept_worlds=32),
    "pilot": Sizes(plays=24, kept=4, worlds=6, kept_worlds=3),
    "smoke": Sizes(plays=6, kept=2, worlds=1, kept_worlds=1),
}


@dataclass(frozen=True)
class Arm:
    """One way to train on the plays of a seed."""

    plays: tuple[str, ...]
    """Files of plays, taken by turns: of two, the even worlds come from the first."""
    loss_on: str = "refinement"
    about: str = ""


ARMS: Mapping[str, Arm | None] = {
    "full": Arm(("full",), about="mistakes spread evenly; all turns trained but mistakes"),
    "repair masked": Arm(("full",), "no_refinement_turns", "the same; the turn behind a mistake gives no loss"),
    "clean": Arm(("clean",), about="the same worlds, played without mistakes"),
    "unrelated repair": Arm(("unrelated",), about="behind each mistake an accepted action that does not answer it"),
    "unrelated repair masked": Arm(("unrelated",), "no_refinement_turns", "the same; that action gives no loss"),
    "erroneous loss": Arm(("full",), "all_turns", "*full*, mistakes trained too"),
    "half clean": Arm(("full", "clean"), about="every other world played without mistakes"),
    "untuned": None,
}
"""In the order in which they are run; the others are compared with the first."""


@dataclass(frozen=True)
class Unrelated(Rehearsal):
    """The rehearsal whose Player answers a mistake with an action that is accepted and unrelated to it, then goes on as
    if the mistake had not been made.
    """

    faults: Faults = field(default_factory=Faults.none)

    def answer(self, model: object, messages: object, options: Mapping[str, object]) -> dict[str, Any]:
        request = Request.read(model, messages, options)
        task = next((at for at, (role, text) in enumerate(request.messages) if role == "user" and is_task(text)), None)
        label = None if task is None else label_in(request.messages[task][1])
        if task is None or label is None:
            return super().answer(model, messages, options)
        chat = [{"role": role, "content": text} for role, text in request.messages]
        past, wrong, last_is_mistake = inferred_history(initial_position(label), ()), set[int](), False
        for at in range(task + 1, len(chat) - 1, 2):
            acted = past.with_exchange(_exchange(past, chat[at]["content"], chat[at + 1]["content"]))
            last_is_mistake = acted.last_refusal is not None
            if last_is_mistake:
                wrong |= {at, at + 1}
            else:
                past = acted
        luck = request.draws(self.faults, self.seed)
        turn = _aside(past, luck) if last_is_mistake else None
        if turn is not None:
            return completion(request, render_player(turn), luck)
        return super().answer(model, [one for at, one in enumerate(chat) if at not in wrong], options)


def _exchange(past: History, said: str, answer: str) -> Exchange:
    action = parse_player(said).action
    return Exchange(action, answer, refused=past.position.mistake_kind(action) is not None)


def _aside(past: History, luck: Draws) -> PlayerTurn | None:
    """A turn that the world accepts and that brings the goal no nearer; None if there is none."""
    position, left, rng = past.position, plan_of(past), luck.rng("aside")
    anything = sorted({*position.scene.all_actions()} - {*left})
    for action in rng.sample(anything, len(anything)):
        if position.mistake_kind(action) is None and len(left) <= len(position.after(action).plan) <= len(left) + 2:
            return mistaken_turn(luck, past, InjectedMistake(action, MistakeKind.LOGIC, infinitive(position, action)))
    return None


async def _played(
    work: Path, scripts: Sequence[ScriptedPersona], mistakes: Mistakes, call: Rehearsal
) -> dict[str, Trajectory]:
    """The accepted plays of these scripts, by the script's digest."""
    run = await rs.synthesize(
        scripts=scripts,
        n=len(scripts),
        play="grounded",
        grounding=_GROUNDING,
        mistakes=mistakes,
        early_stop=0,
        output=work,
        call=call,
    )
    return {one.script.digest: one for one in run}


async def _drawn(work: Path, name: str, n: int, families: tuple[str, ...], mistakes: Mistakes) -> list[Trajectory]:
    """Plays in new worlds of these families that tell where things are."""
    run = await rs.synthesize(
        [f"reader {at} of {name}" for at in range(6 * n + 32)],
        n=3 * n + 16,
        play="grounded",
        grounding=_GROUNDING,
        mistakes=mistakes,
        early_stop=0,
        output=work,
        call=Rehearsal(Faults.none().model_copy(update={"families": families})),
    )
    return [one for one in run if _SEARCHED not in one.script.introduction][:n]


def _scripts(plays: Sequence[Trajectory]) -> list[ScriptedPersona]:
    return [ScriptedPersona(text=one.persona.text, script=one.script) for one in plays]


async def _training(work: Path, seed: int, sizes: Sizes) -> dict[str, list[Trajectory]]:
    """Of each kind of play as many as the sizes say, in the same worlds."""
    wanted = sizes.plays - sizes.kept
    full = await _drawn(work / "full", f"seed {seed}", wanted + wanted // 3 + 4, TUNED, spread())
    scripts = _scripts(full)
    quiet = Rehearsal(Faults.none())
    clean = await _played(work / "clean", scripts, _CLEAN, quiet)
    unrelated = await _played(work / "unrelated", scripts, spread(), Unrelated())
    both = [one for one in full if one.script.digest in clean and one.script.digest in unrelated][:wanted]
    kept = await _drawn(work / "kept", f"seed {seed}, kept", sizes.kept, (KEPT,), _CLEAN)
    if len(both) < wanted or len(kept) < sizes.kept:
        raise RuntimeError(f"seed {seed} has {len(both)} of {wanted} plays that are accepted in all arms")
    every = wanted // sizes.kept

    def mixed(plays: list[Trajectory]) -> list[Trajectory]:
        """With the kept family's plays at equal distances."""
        return [
            play
            for at, one in enumerate(plays)
            for play in ((kept[at // every], one) if at % every == 0 and at // every < sizes.kept else (one,))
        ]

    digests = [one.script.digest for one in both]
    return {
        "full": mixed(both),
        "clean": mixed([clean[one] for one in digests]),
        "unrelated": mixed([unrelated[one] for one in digests]),
    }


def _record(one: Trajectory) -> dict[str, Any]:
    return {"id": one.id, "messages": [message._asdict() for message in to_messages(one)]}


async def _testing(work: Path, sizes: Sizes) -> list[dict[str, Any]]:
    """Starts: a script, the turns behind which the model goes on, and a kind."""
    found: list[dict[str, Any]] = []

    def begin(kind: str, one: Trajectory, *, mistaken: bool = False) -> None:
        flags = [getattr(turn, "flagged", False) for turn in one.turns]
        before = one.turns[: flags.index(True) + 1] if mistaken else ()
        script = orjson.loads(one.script.to_json())
        found.append({"kind": kind, "script": script, "before": [turn.model_dump(mode="json") for turn in before]})

    quiet = Rehearsal(Faults.none())
    for families, worlds, depths in ((TUNED, sizes.worlds, DEPTHS), ((KEPT,), sizes.kept_worlds, (1,))):
        kept = "kept family, " if families == (KEPT,) else ""
        drawn = await _drawn(work / f"{kept}drawn", f"held out {kept}", 3 * worlds, families, _CLEAN)
        behind = {
            depth: await _played(work / f"{kept}{depth}", _scripts(drawn), prompted(depth), quiet) for depth in depths
        }
        chosen = [one for one in drawn if all(_errs(plays.get(one.script.digest)) for plays in behind.values())]
        if len(chosen) < worlds:
            raise RuntimeError(f"{len(chosen)} of {worlds} held-out worlds have mistakes at all depths")
        for at, one in enumerate(chosen[:worlds]):
            begin(f"{kept}clean", one)
            if not kept:
                begin("own", one)
            depth = depths[at % len(depths)]
            name = f"{kept}imposed" if kept else f"imposed {depth}"
            begin(name, behind[depth][one.script.digest], mistaken=True)
    return found


def _errs(one: Trajectory | None) -> bool:
    return one is not None and any(getattr(turn, "flagged", False) for turn in one.turns)


def write(folder: Path, seed: int, sizes: Sizes) -> None:
    """Write the plays of a seed and the starts, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        if not (folder / "starts.jsonl.gz").exists():
            starts = anyio.run(_testing, Path(name) / "held-out", sizes)
            _write(folder / "starts.jsonl.gz", starts)
        if not (folder / f"seed-{seed}-full.jsonl.gz").exists():
            plays = anyio.run(_training, Path(name) / "seed", seed, sizes)
            for kind, each in reversed(plays.items()):
                _write(folder / f"seed-{seed}-{kind}.jsonl.gz", [_record(one) for one in each])


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(b"".join(orjson.dumps(one) + b"\n" for one in records), mtime=0))
    part.replace(path)


def read(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def records_of(arm: Arm, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The plays of an arm."""
    files = [read(folder / f"seed-{seed}-{kind}.jsonl.gz") for kind in arm.plays]
    return [files[at % len(files)][at] for at in range(len(files[0]))]


def digest_of(records: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(b"\n".join(orjson.dumps(one) for one in records)).hexdigest()[:16]
