"""The teacher of the experiment: plays a scene, and errs where it is asked to.

It knows what a player knows. A mistake is a false belief, said in the words of a true one, and the action that follows
from it: no form of a thought tells a mistake from a right turn.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from bench.ablation.worlds import Scene
from refinesynth._version import __version__
from refinesynth.episode.ruled_action import RuledAction
from refinesynth.settings.mistakes import Mistakes
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, Persona, PlayerTurn, Provenance, Script, Trajectory
from refinesynth.world import World

MOST_ACTIONS = 30
"""Of a play, as in the paper's evaluation (section 4)."""


class Standing(NamedTuple):
    """What a player knows of the state."""

    at: str
    holding: bool
    shut: bool | None
    """Whether the target is shut; None before one has been there."""


def play(name: str, scene: Scene, mistakes: Mistakes | None, *, episode: int) -> Trajectory:
    """A whole play, with mistakes where the policy asks for them; none with None."""
    world, state, rng = World(scene.script), scene.script.environment, Random(f"{name} {episode}")
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    progress = 0.0
    for _ in range(MOST_ACTIONS):
        asked = None if mistakes is None else _asked(mistakes, scene, turns, episode)
        turn = _turn(scene, _standing(scene, state, turns), asked, rng)
        ruled = RuledAction(turn.action, world.step(state, turn.action), (), progress)
        answer = ruled.turn(ruled.thought, ruled.text)
        turns += [turn, answer]
        state, progress = ruled.ruling.state, ruled.ruling.progress
        if ruled.done:
            return as_trajectory(name, scene.script, turns, episode)
    raise RuntimeError(f"the play of {name} does not come to its end")


def _asked(
    mistakes: Mistakes, scene: Scene, turns: list[PlayerTurn | DungeonMasterTurn], episode: int
) -> MistakeKind | None:
    solution = scene.script.rulebook.solution if scene.script.rulebook else ()
    asked = mistakes.ask(turns, episode=episode, seed=episode, length=len(solution))
    return asked.kind if asked is not None and asked.style in {"fresh", "again"} else None


def _standing(scene: Scene, state: object, turns: list[PlayerTurn | DungeonMasterTurn]) -> Standing:
    facts: dict[str, dict[str, str]] = state  # type: ignore[assignment] - the state of our own worlds
    at = str(facts["you"])
    been = any(
        f"You are at {scene.target}. It is" in turn.observation for turn in turns if isinstance(turn, DungeonMasterTurn)
    )
    return Standing(at, facts["at"][scene.thing] == "hand", bool(facts["shut"][scene.target]) if been else None)


def _turn(scene: Scene, now: Standing, asked: MistakeKind | None, rng: Random) -> PlayerTurn:
    if asked is not None:
        proposals = dict(_tempting(scene, now, rng))
        if asked in proposals:
            return proposals[asked]
    return _right(scene, now)


def _right(scene: Scene, now: Standing) -> PlayerTurn:
    thing, source, target = scene.thing, scene.source, scene.target
    if not now.holding:
        return (
            _said(scene, f"The {thing} is at {source}.", "go", source)
            if now.at != source
            else _said(scene, f"The {thing} is here.", "take", thing)
        )
    if now.at != target:
        return _said(scene, f"I have the {thing}, for {target}.", "go", target)
    if now.shut:
        return _said(scene, f"{target} is shut.", "open", target)
    return _said(scene, f"{target} is open.", "leave", thing)


def _tempting(scene: Scene, now: Standing, rng: Random) -> Iterator[tuple[MistakeKind, PlayerTurn]]:
    """Of each kind a mistake that this moment tempts to: before its time, elsewhere, or under nearly the right name."""
    names, thing, source, target = scene.names, scene.thing, scene.source, scene.target
    nearly = dict(zip((*names.places, *names.items), names.absent, strict=True))
    if not now.holding and now.at != source:
        yield MistakeKind.PARAMETER, _said(scene, f"The {thing} is at {nearly[source]}.", "go", nearly[source])
        yield MistakeKind.PLACE, _said(scene, f"The {thing} is here.", "take", thing)
        yield MistakeKind.LOGIC, _said(scene, f"The {thing} is at {now.at}.", "go", now.at)
    elif not now.holding:
        yield MistakeKind.PARAMETER, _said(scene, f"The {nearly[thing]} is here.", "take", nearly[thing])
        yield MistakeKind.PLACE, _said(scene, f"{target} is shut.", "open", target)
        yield MistakeKind.LOGIC, _said(scene, f"{target} is open.", "leave", thing)
    elif now.at != target:
        yield MistakeKind.PARAMETER, _said(scene, f"I have the {thing}, for {nearly[target]}.", "go", nearly[target])
        yield MistakeKind.PLACE, _said(scene, f"{target} is shut.", "open", target)
        yield MistakeKind.LOGIC, _said(scene, f"The {thing} is here.", "take", thing)
    else:
        place = rng.choice([place for place in names.places if place != target])
        yield MistakeKind.PARAMETER, _said(scene, f"{nearly[target]} is shut.", "open", nearly[target])
        yield MistakeKind.PLACE, _said(scene, f"{place} is shut.", "open", place)
        if now.shut:
            yield MistakeKind.LOGIC, _said(scene, f"{target} is open.", "leave", thing)
        else:
            yield MistakeKind.LOGIC, _said(scene, f"{target} is shut.", "open", target)


def _said(scene: Scene, belief: str, verb: str, value: str) -> PlayerTurn:
    return PlayerTurn(thought=belief, action=f"{scene.names.verbs[verb]} {value}")


def as_trajectory(name: str, script: Script, turns: list[PlayerTurn | DungeonMasterTurn], episode: int) -> Trajectory:
    """A play of the teacher as a record."""
    return Trajectory(
        id=name,
        persona=Persona(text=name),
        script=script,
        turns=tuple(turns),
        provenance=Provenance(
            models={"player": "teacher", "dungeon_master": "world"},
            play="grounded",
            seed=episode,
            rules="",
            package_version=__version__,
            attempts=1,
            script_attempts=1,
        ),
    )
