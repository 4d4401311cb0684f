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
    Verb,
    act,
    in_either,
    listed,
    logic,
    moves,
    place,
    quoted,
    sets,
    shuffled,
)

_ROOMS = ("reception", "archive", "meeting room", "kitchenette", "corner office", "accounting", "front desk",
          "library", "server room", "lounge", "design studio", "personnel office")  # fmt: skip
_COPYING = ("copy room", "printer alcove", "print shop")
_STAMPING = ("mail room", "registry", "notary's desk")
_PEOPLE = ("Ms Okafor", "Mr Lindqvist", "Dr Haddad", "Ms Castellanos", "Mr Tanaka", "Ms Novak", "Mr Achterberg",
           "Dr Mbeki", "Ms Farrell", "Mr Iyer")  # fmt: skip
_DOCUMENTS = ("travel request", "lease contract", "invoice 318", "budget sheet", "holiday form", "audit letter",
              "delivery note", "job offer", "floor plan", "insurance claim", "press release", "permit")  # fmt: skip
_FIRMS = ("a law firm", "the town hall", "a small publishing house", "an architects' office", "a shipping agency",
          "a hospital's administration", "a theatre's office", "a housing cooperative")  # fmt: skip

_CARRIED = "document in state.you.carrying"
_IN_HAND = logic(_CARRIED, "The {document} is not with you.")
_WITH = place("state.people[person].room == state.you.room", "{person} is not in this room.")

VERBS = (
    Verb(
        key="walk",
        wordings=("walk to {room}", "go to {room}", "head for {room}", "visit {room}"),
        about=("Walk to another room",),
        doing="walk to the {room}",
        done=("You enter the {room}.", "You are in the {room} now.", "A short walk later you stand in the {room}."),
        requires=(logic("state.you.room != room", "This is the {room} already; there is no way to walk."),),
        effects=(sets("/you/room", "{room}"),),
    ),
    Verb(
        key="fetch",
        wordings=("pick up {document} in {room}", "take {document} from {room}", "collect {document} at {room}",
                  "in {room} grab {document}"),
        about=("Take a document that lies in the room where you are",),
        doing="pick up the {document} in the {room}",
        done=("You have the {document} now.", "You pick up the {document}.", "The {document} goes into your folder."),
        requires=(
            logic(f"!({_CARRIED})", "The {document} is in your folder already."),
            place("state.you.room == room", "The {room} is elsewhere, and nothing can be picked up there from here."),
            logic("document in state.rooms[room].documents", "There is no {document} lying in the {room}."),
        ),
        effects=(moves("/rooms/{room}/documents/{document}", "/you/carrying/{document}"),),
    ),
    Verb(
        key="file",
        wordings=("file {document} in {room}", "leave {document} in {room}", "drop {document} at {room}"),
        about=("Leave a document you carry in the room where you are",),
        doing="leave the {document} in the {room}",
        done=("The {document} lies in the {room} now.", "You leave the {document} in the {room}."),
        requires=(_IN_HAND, place("state.you.room == room", "The {room} is elsewhere; nothing can be left there from here.")),
        effects=(moves("/you/carrying/{document}", "/rooms/{room}/documents/{document}"),),
    ),
    Verb(
        key="copy",
        wordings=("copy {document}", "photocopy {document}", "duplicate {document}"),
        about=("Copy a document you carry, where there is a copier",),
        doing="copy the {document}",
        done=("The copier hums; the {document} is copied.", "A copy of the {document} joins the original."),
        requires=(
            _IN_HAND,
            place("state.rooms[state.you.room].copier", "There is no copier in this room."),
            logic("!state.you.carrying[document].copied", "The {document} has been copied already."),
        ),
        effects=(sets("/you/carrying/{document}/copied", True),),
    ),
    Verb(
        key="stamp",
        wordings=("stamp {document}", "put stamp on {document}", "frank {document}"),
        about=("Stamp a signed document you carry, where there is a stamp",),
        doing="stamp the {document}",
        done=("The stamp comes down on the {document}.", "The {document} is stamped now."),
        requires=(
            _IN_HAND,
            place("state.rooms[state.you.room].stamp", "There is no stamp in this room."),
            logic('state.you.carrying[document].signed_by != ""', "Only signed documents are stamped, and the {document} is not."),
            logic("!state.you.carrying[document].stamped", "The {document} is stamped already."),
        ),
        effects=(sets("/you/carrying/{document}/stamped", True),),
    ),
    Verb(
        key="sign",
        wordings=("ask {person} to sign {document}", "have {person} sign {document}",
                  "get signature of {person} on {document}"),
        about=("Have somebody in the room where you are sign a document you carry",),
        doing="have {person} sign the {document}",
        done=("{person} reads the {document} and signs it.", "{person} signs the {document}.",
              "With a nod {person} signs the {document}."),
        requires=(
            _IN_HAND,
            _WITH,
            logic('state.you.carrying[document].signed_by == ""', "The {document} bears a signature already."),
            logic("state.people[person].may_sign", "{person} is not allowed to sign anything."),
        ),
        effects=(sets("/you/carrying/{document}/signed_by", "{person}"),),
    ),
    Verb(
        key="hand",
        wordings=("hand {document} to {person}", "give {document} to {person}", "deliver {document} to {person}"),
        about=("Give a document you carry to somebody in the room where you are",),
        doing="hand the {document} to {person}",
        done=("{person} thanks you for the {document}.", "{person} takes the {document}."),
        requires=(_IN_HAND, _WITH),
        effects=(moves("/you/carrying/{document}", "/people/{person}/desk/{document}"),),
    ),
    Verb(
        key="look",
        wordings=("look around", "look about the room", "check surroundings"),
        about=("See who and what is in the room",),
        doing="look around",
        done=("You look around.", "You look about you."),
    ),
)  # fmt: skip


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
    rooms = rng.sample(_ROOMS, 5)
    copying, stamping = rng.choice(_COPYING), rng.choice(_STAMPING)
    source, target, start = rng.sample(rooms, 3)
    names = rng.sample(_PEOPLE, 4)
    # Neither signer nor receiver is where the document lies, so that nothing is done without a walk.
    desks = [rng.choice([room for room in rooms if room != source]) for _ in names]
    people: dict[str, Any] = {
        name: {"room": desk, "may_sign": at % 2 == 0, "desk": {}}
        for at, (name, desk) in enumerate(zip(names, desks, strict=True))
    }
    mixed = shuffled(rng, [*rooms, copying, stamping])
    office = _Office(tuple(mixed), copying, stamping, people, signer=names[0], receiver=names[1])
    task = rng.choice(_TASKS)
    documents = tuple(rng.sample(_DOCUMENTS, 5))
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
            "room": tuple(name for name in _ROOMS if name not in rooms),
            "document": tuple(name for name in _DOCUMENTS if name not in documents),
            "person": tuple(name for name in _PEOPLE if name not in names),
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
        f"You run errands at {rng.choice(_FIRMS)} and stand in the {state['you']['room']}. {listed(desks)}; "
        f"{listed(signing)} may sign. The copier is in the {office.copying}, the stamp in the {office.stamping}. "
        f"There are {listed(where)}."
    )


OFFICE = Family(
    name="office",
    verbs=VERBS,
    draw=draw,
    see=see,
    refusals=("Nothing comes of it.", "That does not work.", "No.", "You get nowhere."),
)
