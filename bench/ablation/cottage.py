"""A small family of worlds: things are brought from one place of a cottage to another.

Everything else is the rehearsal's: its executor, its player's way of speaking, its slips, its answers. Only the words are few
and the tasks short, so that a model of a million parameters can learn them in minutes. Whether a place is shut is told to
nobody: who has not tried cannot know, so that a good player, too, is refused now and then and has to learn from the refusal.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from refinesynth.rehearsal.families import Act, Family, Plot, State, Verb
from refinesynth.rehearsal.families.family import Condition, act, chance, listed, logic, place, quoted, sets

PLACES = ("attic", "cellar", "chest", "drawer", "pantry", "shed")
ITEMS = ("apple", "book", "coin", "drum", "fork", "glove")
_PLACES_EACH, _ITEMS_EACH = 4, 3
_SHUT = 0.5
"""Share of the places that are shut, but for the one where the thing is."""

_HAND = "hand"
_HELD = f'state.items[item].at == "{_HAND}"'

VERBS = (
    Verb(
        key="go",
        wordings=("go to {place}", "walk to {place}"),
        about=("Go to a place",),
        doing="go to the {place}",
        done=("You are at the {place}.",),
        requires=(logic("state.you.at != place", "You are at the {place} already."),),
        effects=(sets("/you/at", "{place}"),),
    ),
    Verb(
        key="open",
        wordings=("open {place}",),
        about=("Open a place",),
        doing="open the {place}",
        done=("The {place} is open.",),
        requires=(
            place("state.you.at == place", "The {place} is not here."),
            logic("state.places[place].shut", "The {place} is open already."),
        ),
        effects=(sets("/places/{place}/shut", False),),
    ),
    Verb(
        key="take",
        wordings=("take {item}", "grab {item}"),
        about=("Take a thing",),
        doing="take the {item}",
        done=("You have the {item}.",),
        requires=(
            logic(f"!({_HELD})", "The {item} is in hand already."),
            # Whoever is refused is told what the introduction says: there is something to learn from a mistake.
            place("state.items[item].at == state.you.at", "The {item} is at the {state:/items/{item}/at}."),
        ),
        effects=(sets("/items/{item}/at", _HAND),),
    ),
    Verb(
        key="put",
        wordings=("leave {item}",),
        about=("Leave a thing where you are",),
        doing="leave the {item} here",
        done=("The {item} is here now.",),
        requires=(
            logic(_HELD, "The {item} is not in hand."),
            logic("!state.places[state.you.at].shut", "The {state:/you/at} is shut."),
        ),
        effects=(sets("/items/{item}/at", "{state:/you/at}"),),
    ),
    Verb(
        key="look",
        wordings=("look around",),
        about=("Look around",),
        doing="look around",
        done=("You look around.",),
    ),
)


def _see(state: State, key: str, values: Mapping[str, str]) -> str:
    """Where the player is, after looking; whether that is shut is not seen."""
    del values
    return f"You are at the {state['you']['at']}." if key == "look" else ""


def _draw(rng: Random) -> Plot:
    """A cottage of four places with three things; one of them has to be brought somewhere."""
    places, items = rng.sample(PLACES, _PLACES_EACH), rng.sample(ITEMS, _ITEMS_EACH)
    source, target, start = rng.sample(places, 3)
    wanted = items[0]
    state: dict[str, Any] = {
        "you": {"at": start},
        "places": {name: {"shut": name != source and chance(rng, _SHUT)} for name in places},
        "items": {},
    }
    told: list[str] = []
    for item in rng.sample(items, len(items)):
        where = source if item == wanted else rng.choice([name for name in places if name != target])
        state["items"][item] = {"at": where}
        told.append(f"the {item} is at the {where}")
    there = f"state.items[{quoted(wanted)}].at"
    return Plot(
        introduction=f"You are at the {start}. {listed(told).capitalize()}.",
        state=state,
        goal=f"bring the {wanted} to the {target}",
        conditions=(
            Condition(cel=f"{there} in [{quoted(_HAND)}, {quoted(target)}]", sentence=f"The {wanted} was taken."),
            Condition(cel=f"{there} == {quoted(target)}", sentence=f"The {wanted} is at the {target}."),
        ),
        values={"place": tuple(sorted(places)), "item": tuple(sorted(items))},
        absent={
            "place": tuple(name for name in PLACES if name not in places),
            "item": tuple(name for name in ITEMS if name not in items),
        },
        useful=tuple(_useful(wanted, source, target)),
    )


def _useful(item: str, source: str, target: str) -> Iterator[Act]:
    yield act("go", place=source)
    yield act("take", item=item)
    yield act("go", place=target)
    yield act("open", place=target)
    yield act("put", item=item)


COTTAGE = Family(
    name="cottage",
    verbs=VERBS,
    draw=_draw,
    see=_see,
    refusals=("That does not work.", "Nothing happens.", "No."),
)
