"""An office: a document that goes from hand to hand and room to room."""

from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, listed, shuffled


def draw_office(family: Family, rng: Random) -> Plot:
    """An office of seven rooms, four people and five documents, one of which must make its round."""
    words, task = family.words, rng.choice(family.tasks)
    plain = rng.sample(words["rooms"], 5)
    copying, stamping = rng.choice(words["copying"]), rng.choice(words["stamping"])
    source, target, start = rng.sample(plain, 3)
    names = rng.sample(words["people"], 4)
    signer, receiver, *_ = names
    # Neither signer nor receiver is in the document's room, so every task needs a walk.
    desks = {name: rng.choice([room for room in plain if room != source]) for name in names}
    signing = [name for at, name in enumerate(names) if at % 2 == 0]
    rooms: dict[str, Any] = {
        name: {
            "copier": name == copying,
            "stamp": name == stamping,
            "documents": {},
            "people": [person for person, desk in desks.items() if desk == name],
            "devices": [device for device, room in (("copier", copying), ("stamp", stamping)) if room == name],
        }
        for name in shuffled(rng, [*plain, copying, stamping])
    }
    documents = rng.sample(words["documents"], 5)
    for name in shuffled(rng, documents):
        where = source if name == documents[0] else rng.choice(plain)
        rooms[where]["documents"][name] = {"signed_by": "", "copied": False, "stamped": False}
    # Possible final places of the document, besides the player's folder.
    ends = {"hand": f'state.people["{receiver}"].desk', "file": f'state.rooms["{target}"].documents'}
    ways = {"sign": desks[signer], "hand": desks[receiver], "file": target, "copy": copying, "stamp": stamping}
    walked = {ways[step] for step in task}
    return family.plot(
        {
            "you": {"room": start, "carrying": {}},
            "rooms": rooms,
            "people": {name: {"room": desk, "may_sign": name in signing, "desk": {}} for name, desk in desks.items()},
        },
        names={
            "firm": rng.choice(words["firms"]),
            "start": start,
            "desks": listed([f"{name} sits in the {desk}" for name, desk in desks.items()]),
            "signing": listed(signing),
            "copying": copying,
            "stamping": stamping,
            "signer": signer,
            "signer_room": desks[signer],
            "receiver": receiver,
            "receiver_room": desks[receiver],
            "document": documents[0],
            "source": source,
            "target": target,
            "end": ends.get(task[-1], "state.you.carrying"),
            "where": listed([f"the {one} in the {name}" for name, room in rooms.items() for one in room["documents"]]),
        },
        parts=("fetch", *task) if task[-1] in ends else ("fetch", *task, "keep"),
        values={
            "room": tuple(rooms),
            "document": tuple(shuffled(rng, documents)),
            "person": tuple(shuffled(rng, names)),
        },
        # On the way, the document can be handed to a wrong person, who does not give it back.
        losable=any(desks[name] in walked and not (name == receiver and "hand" in task) for name in names),
    )
