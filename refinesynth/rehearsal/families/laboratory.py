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
    act,
    chance,
    in_either,
    listed,
    quoted,
    read_laws,
    shuffled,
)

LAWS = read_laws("laboratory")
_WORDS = LAWS.words


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
        *(
            rng.choice(names)
            for names in (_WORDS["balances"], _WORDS["heaters"], _WORDS["centrifuges"], _WORDS["lockers"])
        ),
        others=(*rng.sample(_WORDS["benches"], 2), *rng.sample(_WORDS["stores"], 2)),
    )
    task = rng.choice(_TASKS)
    samples = tuple(f"{name} sample" for name in rng.sample(_WORDS["substances"], 5))
    labels, garments = tuple(rng.sample(_WORDS["labels"], 4)), tuple(rng.sample(_WORDS["garments"], 2))
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
            "station": tuple(name for name in (*_WORDS["stores"], *_WORDS["benches"]) if name not in stations)[:6],
            "sample": tuple(name.removesuffix(" sample") for name in samples),
            "label": tuple(name for name in _WORDS["labels"] if name not in labels),
            "garment": tuple(name for name in ("gloves", *_WORDS["garments"]) if name not in garments),
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
        f"You work in {rng.choice(_WORDS['labs'])} and stand at the {state['you']['at']}. Samples are weighed at the {lab.balance}, "
        f"heated at the {lab.heater} and spun in the {lab.centrifuge}; protection hangs at the {lab.locker}. "
        f"The samples are {listed(where)}."
    )


LABORATORY = Family(name=LAWS.name, verbs=LAWS.verbs, draw=draw, see=see, refusals=LAWS.refusals)
