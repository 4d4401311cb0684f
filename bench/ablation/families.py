"""Five families of small worlds in one language: in each something else is to be done, with other verbs.

Each play is a chain of steps. A step is taken for what the player believes, and a mistake is a later step's belief before
its time, or the present one about nearly the right name: false beliefs in the words of true ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Any, NamedTuple

from bench.ablation.playing import MOST_ACTIONS, as_trajectory
from bench.ablation.worlds import every_name, needs, sets, spec
from refinesynth.episode.ruled_action import RuledAction
from refinesynth.settings.mistakes import Mistakes
from refinesynth.trajectory import (
    ActionSpec,
    DungeonMasterTurn,
    Effect,
    MistakeKind,
    PlayerTurn,
    Requirement,
    Rulebook,
    Script,
    Trajectory,
)
from refinesynth.world import World


class Step(NamedTuple):
    """One right action, with what is believed when it is taken; templates over the names of a world."""

    belief: str
    verb: str
    value: str


class Verb(NamedTuple):
    """What can be done in a family."""

    what: str
    """`place`, `thing` or `person`: its placeholder."""
    about: str
    seen: str
    requires: tuple[Requirement, ...]
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Family:
    """A kind of world."""

    name: str
    introduction: str
    goal: str
    conditions: Mapping[str, str]
    """Sentence to CEL, both templates."""
    verbs: tuple[str, ...]
    steps: tuple[Step, ...]


_HERE = needs("state.you == place", "You are not at {place}.", kind="place")
_HELD = needs('state.at[thing] == "hand"', "You do not have the {thing}.")
_MET = needs("state.home[person] == state.you", "{person} is at {state:/home/{person}}, not here.", kind="place")

VERBS: Mapping[str, Verb] = {
    "go": Verb(
        "place",
        "go to a place",
        "You are at {place}.",
        (needs("state.you != place", "You are at {place} already."),),
        (sets("/you", "{place}"),),
    ),
    "take": Verb(
        "thing",
        "take a thing that is here",
        "You have the {thing}.",
        (
            needs('state.at[thing] != "hand"', "You have the {thing} already."),
            needs("state.at[thing] == state.you", "The {thing} is at {state:/at/{thing}}, not here.", kind="place"),
        ),
        (sets("/at/{thing}", "hand"),),
    ),
    "leave": Verb(
        "thing",
        "leave a thing where you are",
        "The {thing} is at {state:/you}.",
        (_HELD,),
        (sets("/at/{thing}", "{state:/you}"),),
    ),
    "wash": Verb(
        "thing",
        "wash a thing that you have, at the water",
        "The {thing} is clean.",
        (_HELD, needs("state.you == state.water", "There is no water here.", kind="place")),
        (sets("/clean/{thing}", value=True),),
    ),
    "unlock": Verb(
        "place",
        "unlock the place where you are, with the key",
        "{place} is unlocked.",
        (_HERE, needs('state.at[state.key] == "hand"', "You do not have the {state:/key}.")),
        (sets("/unlocked/{place}", value=True),),
    ),
    "enter": Verb(
        "place",
        "enter a place that is unlocked",
        "You are inside {place}.",
        (_HERE, needs("state.unlocked[place]", "{place} is locked.")),
        (sets("/inside", "{place}"),),
    ),
    "ask": Verb(
        "person", "ask somebody who is here", "{person} tells you.", (_MET,), (sets("/asked/{person}", value=True),)
    ),
    "tell": Verb(
        "person",
        "tell somebody who is here what you were told",
        "{person} knows.",
        (_MET, needs("state.asked[state.knows]", "Nobody told you anything.")),
        (sets("/told/{person}", value=True),),
    ),
    "switch": Verb(
        "place", "switch on the place where you are", "{place} is on.", (_HERE,), (sets("/on/{place}", value=True),)
    ),
    "run": Verb(
        "place",
        "run the place where you are, when its switch is on",
        "{place} runs.",
        (_HERE, needs("state.on[state.switch]", "{state:/switch} is off.")),
        (sets("/runs/{place}", value=True),),
    ),
}

FAMILIES = (
    Family(
        "bring",
        "You are at {start}. The {thing} is at {source}.",
        "Bring the {thing} from {source} to {target}.",
        {"The {thing} is at {target}.": 'state.at["{thing}"] == "{target}"'},
        ("go", "take", "leave"),
        (
            Step("The {thing} is at {source}.", "go", "{source}"),
            Step("The {thing} is here.", "take", "{thing}"),
            Step("I have the {thing}, for {target}.", "go", "{target}"),
            Step("This is the place for the {thing}.", "leave", "{thing}"),
        ),
    ),
    Family(
        "wash",
        "You are at {start}. The {thing} is at {source}. There is water at {target}.",
        "Wash the {thing} from {source} at {target}.",
        {"The {thing} is clean.": 'state.clean["{thing}"]'},
        ("go", "take", "wash"),
        (
            Step("The {thing} is at {source}.", "go", "{source}"),
            Step("The {thing} is here.", "take", "{thing}"),
            Step("The water is at {target}.", "go", "{target}"),
            Step("Here is the water for the {thing}.", "wash", "{thing}"),
        ),
    ),
    Family(
        "unlock",
        "You are at {start}. The key is the {thing} at {source}. {target} is locked.",
        "Enter {target} with the {thing} from {source}.",
        {"You are inside {target}.": 'state.inside == "{target}"'},
        ("go", "take", "unlock", "enter"),
        (
            Step("The {thing} is at {source}.", "go", "{source}"),
            Step("The {thing} is here.", "take", "{thing}"),
            Step("The {thing} is for {target}.", "go", "{target}"),
            Step("{target} is locked.", "unlock", "{target}"),
            Step("{target} is unlocked.", "enter", "{target}"),
        ),
    ),
    Family(
        "message",
        "You are at {start}. {person} is at {source}. {other} is at {target}.",
        "Tell {other} at {target} what {person} at {source} knows.",
        {"{other} knows.": 'state.told["{other}"]'},
        ("go", "ask", "tell"),
        (
            Step("{person} is at {source}.", "go", "{source}"),
            Step("{person} is here.", "ask", "{person}"),
            Step("{other} is at {target}.", "go", "{target}"),
            Step("I can tell {other} now.", "tell", "{other}"),
        ),
    ),
    Family(
        "machine",
        "You are at {start}. The switch of {target} is {source}.",
        "Run {target} with its switch {source}.",
        {"{target} runs.": 'state.runs["{target}"]'},
        ("go", "switch", "run"),
        (
            Step("The switch is at {source}.", "go", "{source}"),
            Step("{source} is off.", "switch", "{source}"),
            Step("{source} is on, for {target}.", "go", "{target}"),
            Step("{target} can run.", "run", "{target}"),
        ),
    ),
)
"""In the order in which seeds go round."""

_PLACES, _THINGS, _PERSONS = 4, 3, 3
_NAMES = every_name()
_POOLS = {"place": _NAMES[:12], "thing": _NAMES[12:24], "person": _NAMES[24:36]}
_WORDS = {verb: _NAMES[at : at + 6] for verb, at in zip(VERBS, range(36, 120, 6), strict=False)}


@dataclass(frozen=True)
class Chain:
    """One world, and the way through it."""

    script: Script
    steps: tuple[Step, ...]
    words: Mapping[str, str]
    """Of each verb."""
    absent: Mapping[str, str]
    """To each name one that nothing has here."""


def chain_of(family: Family, name: str) -> Chain:
    """The world of this family with this name, always the same."""
    rng = Random(int.from_bytes(blake2b(f"{family.name} {name}".encode(), digest_size=8).digest()))
    drawn = {
        kind: rng.sample(pool, 2 * n)
        for (kind, pool), n in zip(_POOLS.items(), (_PLACES, _THINGS, _PERSONS), strict=True)
    }
    here = {kind: names[: len(names) // 2] for kind, names in drawn.items()}
    absent = {
        one: other
        for names in drawn.values()
        for one, other in zip(names[: len(names) // 2], names[len(names) // 2 :], strict=True)
    }
    start, source, target, spare = here["place"]
    thing, person, other = here["thing"][0], *here["person"][:2]
    named = {"start": start, "source": source, "target": target, "thing": thing, "person": person, "other": other}
    words = {verb: rng.choice(_WORDS[verb]) for verb in family.verbs}
    steps = tuple(Step(*(text.format_map(named) for text in step)) for step in family.steps)
    nothing = {kind: dict.fromkeys(names, False) for kind, names in here.items()}
    environment: dict[str, Any] = {
        "you": start,
        "inside": "",
        "at": {one: source if one == thing else spare for one in here["thing"]},
        "home": dict(zip(here["person"], (source, target, spare), strict=True)),
        "water": target,
        "key": thing,
        "switch": source,
        "knows": person,
        "clean": nothing["thing"],
        "unlocked": nothing["place"],
        "on": nothing["place"],
        "runs": nothing["place"],
        "asked": nothing["person"],
        "told": nothing["person"],
    }
    script = Script(
        introduction=family.introduction.format_map(named),
        environment=environment,
        goal=family.goal.format_map(named),
        completion_conditions=tuple(sentence.format_map(named) for sentence in family.conditions),
        actions=tuple(rng.sample([_action(verb, words[verb], here) for verb in family.verbs], len(family.verbs))),
        rulebook=Rulebook(
            goal=tuple(cel.format_map(named) for cel in family.conditions.values()),
            solution=tuple(f"{words[step.verb]} {step.value}" for step in steps),
        ),
    )
    return Chain(script, steps, words, absent)


def _action(verb: str, word: str, here: Mapping[str, list[str]]) -> ActionSpec:
    one = VERBS[verb]
    return spec(word, one.what, one.about, one.seen, here[one.what]).model_copy(
        update={"requires": one.requires, "effects": one.effects}
    )


def play_chain(name: str, chain: Chain, mistakes: Mistakes | None, *, episode: int) -> Trajectory:
    """A whole play, with mistakes where the policy asks for them; none with None."""
    world, state, progress, done = World(chain.script), chain.script.environment, 0.0, 0
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    tried: set[str] = set()
    for _ in range(MOST_ACTIONS):
        asked = mistakes and mistakes.ask(turns, episode=episode, seed=episode, length=len(chain.steps))
        kind = asked.kind if asked and asked.style in {"fresh", "again"} else None
        tempting = [one for one in _tempting(chain, done) if one.action not in tried] if kind else []
        judged = [(world.step(state, one.action).kind, one) for one in tempting]
        turn = _of_kind(judged, kind) or said(chain, chain.steps[done])
        ruled = RuledAction(turn.action, world.step(state, turn.action), (), progress)
        turns += [turn, ruled.turn(ruled.thought, ruled.text)]
        state, progress = ruled.ruling.state, ruled.ruling.progress
        if ruled.ruling.kind is None:
            done, tried = done + 1, set[str]()
        tried.add(turn.action)
        if ruled.done:
            return as_trajectory(name, chain.script, turns, episode)
    raise RuntimeError(f"the play of {name} does not come to its end")


def _of_kind(judged: Sequence[tuple[MistakeKind | None, PlayerTurn]], kind: MistakeKind | None) -> PlayerTurn | None:
    """A mistake of this kind, else of another."""
    mistakes = [(found, turn) for found, turn in judged if found is not None]
    return next((turn for found, turn in mistakes if found is kind), mistakes[0][1] if mistakes else None)


def _tempting(chain: Chain, done: int) -> Iterator[PlayerTurn]:
    for step in chain.steps[done + 1 :]:
        yield said(chain, step)
    now = chain.steps[done]
    nearly = chain.absent[now.value]
    yield said(chain, Step(now.belief.replace(now.value, nearly), now.verb, nearly))


def said(chain: Chain, step: Step) -> PlayerTurn:
    """The turn that takes a step."""
    return PlayerTurn(thought=step.belief, action=f"{chain.words[step.verb]} {step.value}")


def plays(
    families: tuple[Family, ...], prefix: str, mistakes: Mistakes | None, *, distinct: int | None = None
) -> Iterator[Trajectory]:
    """Plays of these families by turns, without end; in so many distinct worlds, if that is given."""
    for number in count():
        family = families[number % len(families)]
        name = f"{prefix} {number if distinct is None else number % distinct}"
        yield play_chain(name, chain_of(family, name), mistakes, episode=number)
