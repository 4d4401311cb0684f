"""A laboratory with stations: samples are weighed, heated, spun, labelled and stored, in the order that the protocol wants."""

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
    chance,
    in_either,
    listed,
    logic,
    moves,
    place,
    quoted,
    sets,
    shuffled,
)

_BALANCES = ("balance", "microbalance", "weighing table")
_HEATERS = ("hotplate", "water bath", "drying oven", "heating block")
_CENTRIFUGES = ("centrifuge", "microcentrifuge")
_STORES = ("sample fridge", "freezer", "desiccator", "incubator", "storage rack", "cold room")
_BENCHES = ("workbench", "window bench", "fume hood", "prep table", "microscope desk", "side table")
_LOCKERS = ("locker", "coat rack", "safety station")
_GARMENTS = ("goggles", "lab coat", "heat gloves", "face shield")
_SUBSTANCES = ("copper sulfate", "river water", "yeast culture", "soil extract", "sea salt", "leaf pigment", "blood serum",
               "iron oxide", "honey", "pond algae", "citric acid", "clay slurry")  # fmt: skip
_LABELS = ("A1", "B2", "C7", "control", "batch 4", "trial 9", "reference", "do not open")
_LABS = ("a school's chemistry lab", "a small water-testing lab", "the pharmacy's back room", "a brewery's quality lab",
         "a university teaching lab", "a soil institute", "a field station by the lake")  # fmt: skip

_HELD = "sample in state.you.holding"
_IN_HAND = logic(_HELD, "The {sample} is not in hand.")

VERBS = (
    Verb(
        key="go",
        wordings=("go to {station}", "walk over to {station}", "step up to {station}", "approach {station}"),
        about=("Go to a station of the lab",),
        doing="go to the {station}",
        done=("You stand at the {station}.", "You are at the {station} now.", "You walk across to the {station}."),
        requires=(logic("state.you.at != station", "The {station} is where you are; there is no way to go."),),
        effects=(sets("/you/at", "{station}"),),
    ),
    Verb(
        key="take",
        wordings=("take {sample} from {station}", "pick up {sample} at {station}", "fetch {sample} off {station}",
                  "from {station} lift {sample}"),
        about=("Take a sample from the station where you are; one sample at a time",),
        doing="take the {sample} from the {station}",
        done=("You hold the {sample} now.", "You take the {sample} from the {station}.",
              "Carefully you pick up the {sample}."),
        requires=(
            logic(f"!({_HELD})", "The {sample} is in hand already, so it cannot be taken again."),
            place("state.you.at == station", "The {station} is out of reach from here."),
            logic("sample in state.stations[station].samples", "There is no {sample} at the {station}."),
            logic("size(state.you.holding) == 0", "Another sample is in hand, and only one may be carried at a time."),
        ),
        effects=(moves("/stations/{station}/samples/{sample}", "/you/holding/{sample}"),),
    ),
    Verb(
        key="store",
        wordings=("store {sample} in {station}", "put {sample} in {station}", "leave {sample} at {station}",
                  "deposit {sample} into {station}"),
        about=("Put down the sample you hold at the station where you are",),
        doing="leave the {sample} at the {station}",
        done=("The {sample} is in its place at the {station}.", "You leave the {sample} at the {station}.",
              "You put the {sample} down at the {station}."),
        requires=(_IN_HAND, place("state.you.at == station", "The {station} is out of reach from here.")),
        effects=(moves("/you/holding/{sample}", "/stations/{station}/samples/{sample}"),),
    ),
    Verb(
        key="weigh",
        wordings=("weigh {sample}", "determine mass of {sample}", "measure weight of {sample}"),
        about=("Weigh the sample you hold, where there is a balance",),
        doing="weigh the {sample}",
        done=("You weigh the {sample} and write the mass down.", "The mass of the {sample} is in the notebook now.",
              "The display settles; the {sample} is weighed."),
        requires=(
            _IN_HAND,
            place('state.stations[state.you.at].device == "balance"', "There is no balance here to weigh with."),
            logic("!state.you.holding[sample].weighed", "The {sample} has been weighed already."),
        ),
        effects=(sets("/you/holding/{sample}/weighed", True),),
    ),
    Verb(
        key="heat",
        wordings=("heat {sample}", "warm up {sample}", "apply heat to {sample}"),
        about=("Heat the sample you hold, where there is a heater; wear protection, and weigh it first",),
        doing="heat the {sample}",
        done=("The {sample} reaches its temperature.", "You heat the {sample} as the protocol says.",
              "Slowly the {sample} gets hot."),
        requires=(
            _IN_HAND,
            place('state.stations[state.you.at].device == "heater"', "There is no heater here."),
            logic("state.gear.exists(g, state.gear[g].worn)", "Heating without any protection worn is not allowed."),
            logic("state.you.holding[sample].weighed", "The {sample} has to be weighed before it is heated."),
            logic("!state.you.holding[sample].heated", "The {sample} has been heated already."),
        ),
        effects=(sets("/you/holding/{sample}/heated", True),),
    ),
    Verb(
        key="spin",
        wordings=("spin {sample}", "centrifuge {sample}", "run centrifuge with {sample}"),
        about=("Spin the sample you hold, where there is a centrifuge; label it first",),
        doing="spin the {sample}",
        done=("After five minutes the {sample} is separated.", "You spin the {sample}; its layers are clear now.",
              "The rotor stops; the {sample} is spun."),
        requires=(
            _IN_HAND,
            place('state.stations[state.you.at].device == "centrifuge"', "There is no centrifuge here."),
            logic('state.you.holding[sample].label != ""', "Only labelled samples may go into the centrifuge."),
            logic("!state.you.holding[sample].spun", "The {sample} has been spun already."),
        ),
        effects=(sets("/you/holding/{sample}/spun", True),),
    ),
    Verb(
        key="label",
        wordings=("label {sample} as {label}", "mark {sample} with {label}", "write {label} on {sample}"),
        about=("Label the sample you hold",),
        doing='label the {sample} "{label}"',
        done=('The {sample} now says "{label}".', 'You write "{label}" on the {sample}.'),
        requires=(_IN_HAND, logic("state.you.holding[sample].label != label", "The {sample} says {label} already.")),
        effects=(sets("/you/holding/{sample}/label", "{label}"),),
    ),
    Verb(
        key="wear",
        wordings=("wear {garment}", "put on {garment}", "don {garment}"),
        about=("Put on protection where it hangs",),
        doing="put on the {garment}",
        done=("You wear the {garment} now.", "The {garment} fits well enough.", "You put on the {garment}."),
        requires=(
            logic("!state.gear[garment].worn", "The {garment} is worn already."),
            place("state.gear[garment].at == state.you.at", "There is no {garment} here to put on."),
        ),
        effects=(sets("/gear/{garment}/worn", True),),
    ),
    Verb(
        key="look",
        wordings=("look around", "inspect station", "look"),
        about=("See what is where you are",),
        doing="look around",
        done=("You look around.", "You take a good look."),
    ),
)  # fmt: skip


def see(state: State, key: str, values: Mapping[str, str]) -> str:
    """What is at the station, after moving or looking."""
    if key not in {"go", "look"}:
        return ""
    here: str = values.get("station", state["you"]["at"])
    things = [_described(name, sample) for name, sample in state["stations"][here]["samples"].items()]
    things += [
        f"the {name}" for name, garment in state["gear"].items() if garment["at"] == here and not garment["worn"]
    ]
    hand = listed([_described(name, sample) for name, sample in state["you"]["holding"].items()])
    return f"Here you see {listed(things, 'no samples')}." + (f" In your hand: {hand}." if key == "look" else "")


def _described(name: str, sample: State) -> str:
    return f'the {name} labelled "{sample["label"]}"' if sample["label"] else f"the {name}"


@dataclass(frozen=True)
class _Lab:
    balance: str
    heater: str
    centrifuge: str
    locker: str
    others: tuple[str, ...]
    """Benches and stores."""

    @property
    def devices(self) -> dict[str, str]:
        """Station to what it can do."""
        plain = dict.fromkeys((self.locker, *self.others), "none")
        return {self.balance: "balance", self.heater: "heater", self.centrifuge: "centrifuge", **plain}


_TASKS: tuple[tuple[str, ...], ...] = (
    ("weigh", "store"), ("weigh", "label", "store"), ("label", "spin"), ("label", "spin", "store"), ("weigh", "label"),
    ("weigh", "heat"), ("weigh", "heat", "label"), ("weigh", "label", "spin"),
)  # fmt: skip
"""What is to be done with the sample, five to eight steps each."""


def draw(rng: Random) -> Plot:
    """A lab of eight stations and five samples, one of which has to go through a short protocol."""
    lab = _Lab(
        *(rng.choice(names) for names in (_BALANCES, _HEATERS, _CENTRIFUGES, _LOCKERS)),
        others=(*rng.sample(_BENCHES, 2), *rng.sample(_STORES, 2)),
    )
    task = rng.choice(_TASKS)
    samples = tuple(f"{name} sample" for name in rng.sample(_SUBSTANCES, 5))
    labels, garments = tuple(rng.sample(_LABELS, 4)), tuple(rng.sample(_GARMENTS, 2))
    sample, label = samples[0], labels[0]
    source, target, elsewhere = rng.sample(lab.others, 3)
    start = lab.locker if "heat" in task else elsewhere
    stations: dict[str, Any] = {name: {"device": device, "samples": {}} for name, device in _mixed(rng, lab.devices)}
    for name in shuffled(rng, samples):
        where = source if name == sample else rng.choice(lab.others)
        stations[where]["samples"][name] = {
            "label": "", "weighed": name != sample and chance(rng, 0.5), "heated": False, "spun": False
        }  # fmt: skip
    gear = {name: {"at": lab.locker, "worn": False} for name in garments}
    state: dict[str, Any] = {"you": {"at": start, "holding": {}}, "gear": gear, "stations": stations}
    goal, conditions = _ending(task, sample, label, target)
    return Plot(
        introduction=_introduction(rng, lab, state),
        state=state,
        goal=goal,
        conditions=conditions,
        values={"station": tuple(stations), "sample": tuple(shuffled(rng, samples)),
                "label": tuple(shuffled(rng, labels)), "garment": garments},
        absent={
            "station": tuple(name for name in (*_STORES, *_BENCHES) if name not in stations)[:6],
            "sample": tuple(name.removesuffix(" sample") for name in samples),
            "label": tuple(name for name in _LABELS if name not in labels),
            "garment": tuple(name for name in ("gloves", *_GARMENTS) if name not in garments),
        },
        useful=tuple(_useful(task, lab, (sample, label, garments[0]), (source, target))),
    )  # fmt: skip


def _mixed(rng: Random, devices: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, devices[name]) for name in shuffled(rng, list(devices))]


def _useful(task: tuple[str, ...], lab: _Lab, names: tuple[str, str, str], ends: tuple[str, str]) -> Iterator[Act]:
    (sample, label, garment), (source, target) = names, ends
    yield act("go", station=source)
    yield act("take", sample=sample, station=source)
    for step, station in (("weigh", lab.balance), ("spin", lab.centrifuge), ("heat", lab.heater)):
        if step in task:
            yield act("go", station=station)
            yield act(step, sample=sample)
    if "heat" in task:
        yield act("wear", garment=garment)
    if "label" in task:
        yield act("label", sample=sample, label=label)
    if "store" in task:
        yield act("go", station=target)
        yield act("store", sample=sample, station=target)


def _ending(task: tuple[str, ...], sample: str, label: str, target: str) -> tuple[str, tuple[Condition, ...]]:
    """The goal, and one condition for each thing to be done; the sample is in the hand or at the target in the end."""
    held, stored = "state.you.holding", f"state.stations[{quoted(target)}].samples"
    said = {"weigh": ("weighed", "weigh"), "heat": ("heated", "heat"), "spin": ("spun", "spin")}
    conditions: list[Condition] = []
    phrases: list[str] = []
    for step in task:
        if step in said:
            cel = in_either(sample, held, stored, f".{said[step][0]}")
            conditions.append(Condition(cel=cel, sentence=f"The {sample} is {said[step][0]}."))
            phrases.append(f"{said[step][1]} it")
        elif step == "label":
            cel = in_either(sample, held, stored, f".label == {quoted(label)}")
            conditions.append(Condition(cel=cel, sentence=f'The label of the {sample} says "{label}".'))
            phrases.append(f'label it "{label}"')
        else:
            cel = f"{quoted(sample)} in {stored}"
            conditions.append(Condition(cel=cel, sentence=f"The {sample} is at the {target}."))
            phrases.append(f"leave it at the {target}")
    if "store" not in task:
        conditions.append(
            Condition(cel=f"{quoted(sample)} in {held}", sentence=f"The {sample} is in the player's hand.")
        )
    return f"take the {sample}, {listed(phrases)}", tuple(conditions)


def _introduction(rng: Random, lab: _Lab, state: State) -> str:
    where = [f"the {name} at the {station}" for station, one in state["stations"].items() for name in one["samples"]]
    return (
        f"You work in {rng.choice(_LABS)} and stand at the {state['you']['at']}. Samples are weighed at the {lab.balance}, "
        f"heated at the {lab.heater} and spun in the {lab.centrifuge}; protection hangs at the {lab.locker}. "
        f"The samples are {listed(where)}."
    )


LABORATORY = Family(
    name="laboratory",
    verbs=VERBS,
    draw=draw,
    see=see,
    refusals=("Nothing happens.", "That is not possible.", "The attempt fails.", "You stop short."),
)
