"""A house that is searched: things in rooms and boxes, locks, keys and a dark room."""

from itertools import pairwise
from random import Random

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled
from refinesynth.rehearsal.families.maps import STEPS, ring_map, route


def draw_search(family: Family, rng: Random) -> Plot:
    """Six rooms in a ring with one short cut, one of them dark, four boxes, five things; one thing has to be found."""
    words = family.words
    while True:
        task, doors = rng.choice(family.tasks), ring_map(rng, words["rooms"])
        rooms = tuple(doors)
        start, target, dark = rng.choice(rooms), rng.choice(rooms), rng.choice(rooms)
        boxes = {name: rng.choice(rooms) for name in rng.sample(words["boxes"], 4)}
        box, other, *_ = boxes
        locked, key_room = chance(rng, 0.6), rng.choice([room for room in rooms if room != dark])
        if task == ("stow",):
            target = boxes[other]
        stops = (start, *((key_room,) if locked else ()), boxes[box], target)
        way = [passed for leg in pairwise(stops) for passed in route(doors, *leg)]
        lamp = dark == boxes[box] or (task == ("stow",) and dark == target)
        steps = len(way) + 2 + locked + lamp + len(family.parts[task[0]].acts)
        if start not in {boxes[box], dark} and boxes[box] != target and steps in STEPS:
            break
    things = rng.sample(words["things"], 4)
    key = f"{rng.choice(words['metals'])} key"
    lies = {name: rng.choice([*rooms, *boxes]) for name in things[1:]} | {things[0]: box, key: key_room}
    if not locked:
        lies[key] = rng.choice(rooms)
    order = shuffled(rng, [*things, key])
    where = [f"the {name} is in the {lies[name]}" for name in order]
    return family.plot(
        {
            "you": {"room": start, "bag": {}, "lamp": False},
            "rooms": {
                name: {
                    "next_to": doors[name],
                    "things": noted(thing for thing in order if lies[thing] == name),
                    "boxes": [one for one, room in boxes.items() if room == name],
                    "shows": "darkness" if name == dark else "things",
                    "furniture": "darkness" if name == dark else "boxes",
                    "darkness": "only darkness",
                }
                for name in shuffled(rng, rooms)
            },
            "boxes": {
                name: {
                    "open": name != box and chance(rng, 0.3),
                    "locked": locked and name == box,
                    "things": noted(thing for thing in order if lies[thing] == name),
                }
                for name in boxes
            },
            "inside": {name: at if at in boxes else "" for name, at in lies.items()},
            "keys": {key: {"fits": box if locked else "nothing here"}},
        },
        names={
            "house": rng.choice(words["houses"]),
            "start": start,
            "doors": "; ".join(f"{name}: {', '.join(doors[name])}" for name in rooms),
            "gloom": f"There is no light in the {dark}",
            "thing": things[0],
            "target": target,
            "other": other,
            "where": listed([*(f"the {name} stands in the {room}" for name, room in boxes.items()), *where]),
        },
        parts=task,
        values={"room": rooms, "box": tuple(boxes), "thing": tuple(order)},
        acts=[
            *(("go", {"room": name}) for name in way),
            *((("light", {}),) if lamp else ()),
            *((("take", {"thing": key}),) if locked else ()),
            ("open", {"box": box}),
            ("take", {"thing": things[0]}),
        ],
    )
