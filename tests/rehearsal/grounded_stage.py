"""Plays grounded episodes by calling the rehearsal in a loop, with the engine between Player and DungeonMaster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from pydantic import JsonValue
from rehearsal_stage import PERFECT, Spoken, ask_json, text

from refinesynth import chat
from refinesynth.episode.ruled_action import FAILURE_TEXTS, RuledAction
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Rehearsal
from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.scene import GROUNDED, SCENES, draw_scene
from refinesynth.roles.dungeon_master import history, player_view
from refinesynth.rules.observation_words import judge_words
from refinesynth.trajectory import MistakeKind, Script
from refinesynth.world import Ruling, World, world_of

LABELS = st.builds("{}-{}{}".format, st.sampled_from(sorted(FAMILIES)), st.integers(0, SCENES - 1), st.just(GROUNDED))
"""Of grounded scenes."""

MISTAKES = st.dictionaries(st.integers(0, 12), st.sampled_from(MistakeKind), max_size=3)
"""Number of the player's turn to a mistake that is asked for then."""

FAILURES = st.sets(st.integers(0, 20), max_size=4)
"""Numbers of the player's turns whose actions fail for a moment, if they can."""


def grounded(label: str) -> Script:
    """The script of a grounded scene."""
    return draw_scene(label).grounded


def written(
    rehearsal: Rehearsal,
    persona: str = "a baker",
    *,
    wanted: Mapping[str, Any] | None = None,
    seed: int = 0,
    **more: Any,
) -> dict[str, JsonValue]:
    """The ScriptWriter's answer to a request of grounded play."""
    asked = {"step": "all", "features": [], "actions": [2, 40], **(wanted or {})}
    extra = (block(value, name) for name, value in more.items())
    return ask_json(rehearsal, block(persona, "persona"), block(asked, "wanted"), *extra, seed=seed)


def worded(
    rehearsal: Rehearsal, script: Script, ruled: RuledAction, turns: tuple[Spoken, ...] = (), seed: int = 0
) -> str:
    """The DungeonMaster's observation for a ruling."""
    answer = ask_json(
        rehearsal,
        block(player_view(script), "script"),
        block(history(turns, thoughts=False), "history"),
        block(ruled.action, "action"),
        block(ruled.to_prompt(), "ruling"),
        seed=seed,
    )
    assert answer.keys() == {"thought", "observation"}
    assert answer["thought"]
    return str(answer["observation"])


def problems(world: World, ruled: RuledAction, observation: str) -> list[str]:
    """What the rules have against an observation."""
    return judge_words(
        world, ruled.ruling, ruled.visible_before, observation, action=ruled.action, transient=ruled.transient
    )


def ruled_of(world: World, state: JsonValue, action: str, *, excuse: str | None = None) -> RuledAction:
    return RuledAction(
        action=action,
        ruling=world.step(state, action),
        visible_before=world.visible(state),
        progress_before=world.progress(state),
        failure_text=excuse,
    )


@dataclass
class Played:
    """A grounded play."""

    turns: list[Spoken] = field(default_factory=list[Spoken])
    rulings: list[Ruling] = field(default_factory=list[Ruling])
    problems: list[str] = field(default_factory=list[str])
    asked: list[tuple[MistakeKind, MistakeKind | None]] = field(default_factory=list[Any])
    failed: list[str] = field(default_factory=list[str])
    """Actions that failed for a moment."""
    done: bool = False


Words = Callable[[RuledAction, tuple[Spoken, ...], int], str]
"""Says what a ruling comes to."""


def terse(ruled: RuledAction, _: tuple[Spoken, ...], __: int) -> str:
    """The world's own words."""
    return ruled.text


def play(
    script: Script,
    *,
    rehearsal: Rehearsal = PERFECT,
    words: Words | None = None,
    mistakes: Mapping[int, MistakeKind] | None = None,
    failures: set[int] | None = None,
    most: int = 40,
) -> Played:
    """A play to its end; `words` is the rehearsal's DungeonMaster unless given."""
    world, played = world_of(script), Played()
    state: JsonValue = script.environment
    for number in range(most):
        messages = [{"role": one.role, "content": one.content} for one in chat.render_turns(script, played.turns)]
        again = bool(played.failed) and bool(played.turns) and getattr(played.turns[-1], "transient", False)
        wanted = None if again else (mistakes or {}).get(number)
        if wanted is not None:
            messages[-1]["content"] += f"\n\n{block({'slip': wanted}, 'private')}"
        turn = chat.parse_player(text(rehearsal, messages, seed=number))
        ruling = world.step(state, turn.action)
        fails = ruling.kind is None and ruling.state is not state and number in (failures or set()) and not again
        ruled = ruled_of(
            world, state, turn.action, excuse=FAILURE_TEXTS[number % len(FAILURE_TEXTS)] if fails else None
        )
        before = tuple(played.turns)
        said = words(ruled, before, number) if words else worded(rehearsal, script, ruled, before, number)
        played.problems += problems(world, ruled, said)
        played.turns += [turn, ruled.turn("A thought.", said)]
        played.rulings.append(ruling)
        if wanted is not None:
            played.asked.append((wanted, ruling.kind))
        if fails:
            played.failed.append(turn.action)
        else:
            state = ruling.state
        if ruled.done:
            played.done = True
            break
    return played
