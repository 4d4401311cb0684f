"""Errands in an office: documents are fetched, copied, stamped, signed by the right person, handed over and filed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import (
    Act,
    Condition,
    Family,
    Plot,
    State,
    act,
    in_either,
    listed,
    quoted,
    read_laws,
    shuffled,
)

LAWS = read_laws("office")
_WORDS = LAWS.words


def see(state: State, key: str, values: Mapping[str, str]) -> str:
    """Who and what is in the room, after walking or looking."""
    if key not in {"walk", "look"}:
        return ""
    name: str = values.get("room", state["you"]["room"])
    room = state["rooms"][name]
    people = [person for person, one in state["people"].items() if one["room"] == name]
    documents = [f"the {document}" for document in room["documents"]]
    devices = [f"a {device}" for device in ("copier", "stamp") if room[device]]
    seen = f"In here: {listed([*people, *documents, *devices], 'nobody and nothing of interest')}."
    return f"{seen} You carry {listed([f'the {one}' for one in state['you']['carrying']])}." if key == "look" else seen


@dataclass(frozen=True)
class _Office:
    rooms: tuple[str, ...]
    copying: str
    stamping: str
    people: Mapping[str, Mapping[str, Any]]
    signer: str
    receiver: str

    def room_of(self, person: str) -> str:
        """Where that person is."""
        return self.people[person]["room"]


_TASKS: tuple[tuple[str, ...], ...] = (
    ("sign", "hand"), ("copy", "hand"), ("copy", "file"), ("sign", "file"), ("sign", "stamp"), ("copy", "sign"),
    ("sign", "stamp", "hand"), ("copy", "sign", "file"), ("sign", "stamp", "file"), ("copy", "sign", "hand"),
)  # fmt: skip
"""What is to be done with the document, up to nine steps each with the walks between."""


def draw(rng: Random) -> Plot:
    """An office of seven rooms with four people and five documents, one of which has to make its round."""
    rooms = rng.sample(_WORDS["rooms"], 5)
    copying, stamping = rng.choice(_WORDS["copying"]), rng.choice(_WORDS["stamping"])
    source, target, start = rng.sample(rooms, 3)
    names = rng.sample(_WORDS["people"], 4)
    # Neither signer nor receiver is where the document lies, so that nothing is done without a walk.
    desks = [rng.choice([room for room in rooms if room != source]) for _ in names]
    people: dict[str, Any] = {
        name: {"room": desk, "may_sign": at % 2 == 0, "desk": {}}
        for at, (name, desk) in enumerate(zip(names, desks, strict=True))
    }
    mixed = shuffled(rng, [*rooms, copying, stamping])
    office = _Office(tuple(mixed), copying, stamping, people, signer=names[0], receiver=names[1])
    task = rng.choice(_TASKS)
    documents = tuple(rng.sample(_WORDS["documents"], 5))
    state: dict[str, Any] = {
        "you": {"room": start, "carrying": {}},
        "rooms": {
            name: {"copier": name == copying, "stamp": name == stamping, "documents": {}} for name in office.rooms
        },
        "people": people,
    }
    for document in shuffled(rng, documents):
        where = source if document == documents[0] else rng.choice(rooms)
        state["rooms"][where]["documents"][document] = {"signed_by": "", "copied": False, "stamped": False}
    goal, conditions = _ending(task, office, documents[0], target)
    return Plot(
        introduction=_introduction(rng, office, state),
        state=state,
        goal=goal,
        conditions=conditions,
        values={
            "room": office.rooms,
            "document": tuple(shuffled(rng, documents)),
            "person": tuple(shuffled(rng, names)),
        },
        absent={
            "room": tuple(name for name in _WORDS["rooms"] if name not in rooms),
            "document": tuple(name for name in _WORDS["documents"] if name not in documents),
            "person": tuple(name for name in _WORDS["people"] if name not in names),
        },
        useful=tuple(_useful(task, office, documents[0], source, target)),
    )


def _useful(task: tuple[str, ...], office: _Office, document: str, source: str, target: str) -> Iterator[Act]:
    yield act("walk", room=source)
    yield act("fetch", document=document, room=source)
    ways = {
        "copy": (office.copying, act("copy", document=document)),
        "stamp": (office.stamping, act("stamp", document=document)),
        "sign": (office.room_of(office.signer), act("sign", person=office.signer, document=document)),
        "hand": (office.room_of(office.receiver), act("hand", document=document, person=office.receiver)),
        "file": (target, act("file", document=document, room=target)),
    }
    for room in dict.fromkeys(ways[step][0] for step in task):
        yield act("walk", room=room)
    for step in task:
        yield ways[step][1]


def _ending(task: tuple[str, ...], office: _Office, document: str, target: str) -> tuple[str, tuple[Condition, ...]]:
    """The goal, and one condition for each thing to be done, wherever the document ends."""
    ends = {
        "hand": (f"state.people[{quoted(office.receiver)}].desk", f"{office.receiver} has the {document}."),
        "file": (f"state.rooms[{quoted(target)}].documents", f"The {document} is in the {target}."),
    }
    end, sentence = ends.get(task[-1], ("state.you.carrying", f"The player carries the {document}."))
    signed = f".signed_by == {quoted(office.signer)}"
    told = {
        "copy": ("have it copied", _of(document, end, ".copied"), f"The {document} is copied."),
        "stamp": ("have it stamped", _of(document, end, ".stamped"), f"The {document} is stamped."),
        "sign": (
            f"have it signed by {office.signer}",
            _of(document, end, signed),
            f"The {document} is signed by {office.signer}.",
        ),
        "hand": (f"hand it to {office.receiver}", f"{quoted(document)} in {end}", sentence),
        "file": (f"leave it in the {target}", f"{quoted(document)} in {end}", sentence),
    }
    conditions = [Condition(cel=told[step][1], sentence=told[step][2]) for step in task]
    if task[-1] not in ends:
        conditions.append(Condition(cel=f"{quoted(document)} in {end}", sentence=sentence))
    return f"fetch the {document}, {listed([told[step][0] for step in task])}", tuple(conditions)


def _of(document: str, end: str, test: str) -> str:
    return in_either(document, "state.you.carrying", end, test)


def _introduction(rng: Random, office: _Office, state: State) -> str:
    desks = [f"{name} sits in the {person['room']}" for name, person in state["people"].items()]
    signing = [name for name, person in state["people"].items() if person["may_sign"]]
    where = [f"the {document} in the {name}" for name, room in state["rooms"].items() for document in room["documents"]]
    return (
        f"You run errands at {rng.choice(_WORDS['firms'])} and stand in the {state['you']['room']}. {listed(desks)}; "
        f"{listed(signing)} may sign. The copier is in the {office.copying}, the stamp in the {office.stamping}. "
        f"There are {listed(where)}."
    )


OFFICE = Family(name=LAWS.name, verbs=LAWS.verbs, draw=draw, see=see, refusals=LAWS.refusals)
