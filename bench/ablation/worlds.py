"""Scenes of the small family, trajectories that the rehearsal's player plays in them, and scenes to be evaluated in.

In both, the world answers in its own plain words, as it does in the benchmark `worlds`.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from random import Random

from bench.ablation.cottage import COTTAGE, draw
from refinesynth import Trajectory
from refinesynth._version import __version__
from refinesynth.episode.ruled import Ruled
from refinesynth.rehearsal import Faults, player
from refinesynth.rehearsal.families import Plot, Verb
from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.memory import Exchange, Past, Position
from refinesynth.rehearsal.memory import _Kept as Kept  # pyright: ignore[reportPrivateUsage]
from refinesynth.rehearsal.scene import Scene, written
from refinesynth.settings.mistakes import at_least
from refinesynth.trajectory import (
    ActionSpec,
    DungeonMasterTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Rulebook,
    Script,
    flagged_turns,
)
from refinesynth.world import World

MOST_ACTIONS = 30
"""Of a play, as in the paper's evaluation (section 4)."""

_MISTAKES = 2
"""At least, in every trajectory: the paper's minimum."""


def _luck(name: str) -> Luck:
    """Draws that depend on this name alone; nothing goes wrong that nobody asked for."""
    return Luck(blake2b(name.encode(), digest_size=16).digest(), Faults.none())


CALM = _luck("181")
"""Always the same draws: of the rehearsal's many ways to say something, a short one that gives reasons, so that there
is less to learn."""


def scene_of(name: str) -> Scene:
    """The scene with this name, such as `train 17`; always the same."""
    rng = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()))
    plot = draw(rng)
    verbs = {rng.choice(verb.wordings): verb for verb in COTTAGE.verbs}
    actions = tuple(_action(template, verb, plot) for template, verb in verbs.items())
    script = Script(
        introduction=f"{plot.introduction} {plot.whereabouts}",
        environment=plot.state,
        goal=f"{plot.goal[0].upper()}{plot.goal[1:]}.",
        completion_conditions=tuple(condition.sentence for condition in plot.conditions),
        actions=actions,
        rulebook=Rulebook(goal=tuple(condition.cel for condition in plot.conditions)),
    )
    return Scene(
        label=name,
        family=COTTAGE,
        plot=plot,
        script=script.imagined(),
        executed=script,
        world=World(script),
        verbs=verbs,
        useful=tuple(written(actions, verbs, act) for act in plot.useful),
    )


def opening(name: str) -> Past:
    """Where every play of this scene begins."""
    scene = scene_of(name)
    return Past(Position(scene, scene.plot.state, before=None, kept=Kept()))


def answered(past: Past, action: str) -> tuple[DungeonMasterTurn, Past]:
    """What the world says to an action, and everything up to then."""
    position = past.position
    ruled = Ruled(action, position.ruling(action), (), position.scene.world.progress(position.state))
    turn = ruled.turn(ruled.thought, ruled.text)
    return turn, past.and_then(Exchange(action, turn.observation, turn.flagged))


def write_worlds(path: Path, names: Iterable[str]) -> Path:
    """The scenes with these names as a file that the benchmark `worlds` reads, each with its rulebook."""
    path.write_bytes(b"".join(b'{"script": %b}\n' % scene_of(name).executed.to_json() for name in names))
    return path


def trajectories(prefix: str) -> Iterator[Trajectory]:
    """As many as one likes, in worlds whose names begin with `prefix`."""
    episode = 0
    while True:
        found = _played(f"{prefix} {episode}", episode)
        if found is not None:
            yield found
        episode += 1


def _played(name: str, episode: int) -> Trajectory | None:
    """The rehearsal's play of this scene; None if it does not come to its end, or with too few mistakes."""
    policy = at_least(_MISTAKES)
    past, turns = opening(name), list[PlayerTurn | DungeonMasterTurn]()
    for number in range(MOST_ACTIONS):
        wanted = policy.ask(turns, episode=episode)
        turn = player.decide(CALM if wanted is None else _luck(f"{name}/{number}"), past, wanted)
        after, past = answered(past, turn.action)
        turns += [turn, after]
        if past.arrived and not after.flagged:
            break
    if not past.arrived or len(flagged_turns(turns)) < _MISTAKES:
        return None
    return Trajectory(
        id=name,
        persona=Persona(text=name),
        script=past.position.scene.script,
        turns=tuple(turns),
        provenance=Provenance(
            models={"player": "rehearsal", "dungeon_master": "rehearsal"},
            play="live",
            seed=episode,
            rules="",
            package_version=__version__,
            attempts=1,
            script_attempts=1,
        ),
    )


def _action(template: str, verb: Verb, plot: Plot) -> ActionSpec:
    names = ActionSpec(name=template, pattern=template).placeholders
    pattern = template
    for name in names:
        pattern = pattern.replace(f"{{{name}}}", "(.+?)")
    return ActionSpec(
        name=template,
        pattern=f"^{pattern}$",
        parameters={name: plot.values[name] for name in names},
        requires=verb.requires,
        effects=verb.effects,
        reveals=verb.observations[0],
    )
