"""The sentences that stand for facts and actions of AgentBoard's four planning domains, and the actions as one is told."""

from collections.abc import Mapping, Sequence

from refinesynth.evaluate.environments.environment import CHECK, Action

AGENTBOARD: Mapping[str, str] = {
    # blockworld
    "clear": "The {} is clear.",
    "arm-empty": "Your arm is empty.",
    "on-table": "{} is on the table.",
    "pickup": "Pickup {}.",
    "putdown": "Putdown {}.",
    "stack": "Stack {} on {}.",
    "unstack": "Unstack {} from {}.",
    # tyreworld
    "isopen": "{} is open.",
    "closed": "{} is closed.",
    "have": "You have {}.",
    "in": "{} is in {}.",
    "loose": "The nut {} on the hub {} is loose.",
    "tight": "The nut {} on the hub {} is tight.",
    "unlocked": "{} is unlocked.",
    "on-ground": "Hub {} is on the ground.",
    "not-on-ground": "Hub {} is not on the ground.",
    "inflated": "Wheel {} is inflated.",
    "not-inflated": "Wheel {} is not inflated.",
    "fastened": "Hub {} is fastened.",
    "unfastened": "Hub {} is unfastened.",
    "on": "{} is on {}.",
    "intact": "Wheel {} is intact.",
    "open": "Open {}.",
    "close": "Close {}.",
    "fetch": "Fetch {} from {}.",
    "put-away": "Put-away {} in {}.",
    "loosen": "Loosen the nut {} on the hub {}.",
    "tighten": "Tighten the nut {} on the hub {}.",
    "jack-up": "jack-up the hub {}.",
    "jack-down": "Jack-down the hub {}.",
    "undo": "Undo the fastening of the nut {} on the hub {}.",
    "do-up": "Do-up the nut {} on the hub {}.",
    "remove-wheel": "Remove-wheel {} from the hub {}.",
    "put-on-wheel": "put-on-wheel {} on the hub {}.",
    "inflate": "Inflate the wheel {}.",
    # gripper
    "ball": "{} is a ball. ",
    "gripper": "{} is a gripper. ",
    "at-robby": "Robby is at {}. ",
    "at": "{} is at {}. ",
    "free": "{} is free. ",
    "carry": "{} is carrying {}. ",
    "move": "Move from {} to {}. ",
    "pick": "Pick up {} at {} with arm {}. ",
    # barman
    "ontable": "{} is on the table. ",
    "holding": "You are holding {}. ",
    "empty": "{} is empty. ",
    "contains": "{} contains {}. ",
    "clean": "{} is clean. ",
    "used": "Pour {} from a shot glass to a used shaker {}",
    "dispenses": "{} dispenses {}. ",
    "shaker-empty-level": "{} is at empty level {}. ",
    "shaker-level": "{} is at level {}. ",
    "next": "level {} is next to level {}. ",
    "unshaked": "{} is unshaked. ",
    "shaked": "{} is shaked. ",
    "cocktail-part1": "{} part1 ingredient is {}. ",
    "cocktail-part2": "{} part2 ingredient is {}. ",
    "grasp": "{} grasp {}. ",
    "leave": "{} leave {}. ",
    "fill-shot": "fill-shot glass {} with {} with {} and {} holding {}. ",
    "refill-shot": "refill-shot {} with {} with {} and {} holding {}. ",
    "empty-shot": "use hand {} to empty-shot glass {} with beverage {}. ",
    "clean-shot": "clean-shot glass {} with {} with hand {} holding shot glass and {}. ",
    "pour-shot-to-clean-shaker": "pour-shot-to-clean-shaker from a shot glass {} with {} to a clean shaker {} with hand {} "
    "from level {} to level {}",
    "pour-shot-to-used-shaker": "pour-shot-to-used-shaker from a shot glass {} with {} to a used shaker {} with hand {} "
    "from level {} to level {}",
    "empty-shaker": "use hand {} to empty-shaker {} with ingredient {} from level {} to level {}.",
    "clean-shaker": "use hand {} and hand {} to clean-shaker {}",
    "shake": "shake a cocktail {} with ingredient {} and ingredient {} in a shaker {} with hand {} and hand {}",
    "pour-shaker-to-shot": "pour-shaker-to-shot to a shot glass {} the ingredient {} with hand {} from shaker {} from level "
    "{} to level {}",
}
"""By name of the predicate or action; one that is missing is said as its name and its objects."""

REPAIRED: Mapping[str, str] = {
    **AGENTBOARD,
    "carry": "{1} is carrying {0}. ",
    "drop": "Drop {} at {} with arm {}. ",
    "room": "{} is a room. ",
    "handempty": "{} is empty. ",
    "used": "{} has been used for {}. ",
    "pour-shaker-to-shot": "pour-shaker-to-shot the beverage {} to a shot glass {} with hand {} from shaker {} from level {} "
    "to level {}",
}
_HOLDING = "{0} is holding {1}. "
"""Where a hand is named that holds; AgentBoard names only the hand, as what is held."""


def sentence(name: str, objects: Sequence[str], *, repaired: bool) -> str:
    """A fact or an action in words."""
    words = REPAIRED if repaired else AGENTBOARD
    template = _HOLDING if repaired and name == "holding" and len(objects) > 1 else words.get(name)
    if template is None or template.count("{") > len(objects):
        return " ".join((name, *objects)) if objects else f"{name} "
    return template.format(*objects)


_LOOK = Action("look around", "All that is the case.")
_CHECK = Action(CHECK, "List what you can do now.")
_POUR = "shot} {ingredient} {shaker} {hand} {level1} {level2}"

ACTIONS: Mapping[str, tuple[Action, ...]] = {
    "gripper": (
        Action("move {room1} {room2}", "Go from the room where you are to another."),
        Action("pick {obj} {room} {gripper}", "Take an object that is in your room with a free gripper."),
        Action("drop {obj} {room} {gripper}", "Put down in your room what the gripper carries."),
        _CHECK,
    ),
    "blockworld": (
        Action("pickup {block}", "Take a clear block from the table with your empty arm."),
        Action("putdown {block}", "Put the block that you hold on the table."),
        Action("stack {block1} {block2}", "Put the block that you hold on a clear one."),
        Action("unstack {block1} {block2}", "Take a clear block from the one below it with your empty arm."),
        _CHECK,
    ),
    "barman": (
        Action("{hand} grasp {container}", "Take a container from the table with an empty hand."),
        Action("{hand} leave {container}", "Put the container that the hand holds on the table."),
        Action(
            "fill-shot {shot} {ingredient} {hand1} {hand2} {dispenser}",
            "Fill a clean, empty shot glass, held in the first hand; the second is empty.",
        ),
        Action(
            "refill-shot {shot} {ingredient} {hand1} {hand2} {dispenser}",
            "Fill an empty shot glass again with what it held before; the second hand is empty.",
        ),
        Action("empty-shot {hand} {shot} {beverage}", "Empty the shot glass that the hand holds."),
        Action(
            "clean-shot {shot} {beverage} {hand1} {hand2}",
            "Clean an empty shot glass of what it held, the second hand being empty.",
        ),
        Action(f"pour-shot-to-clean-shaker {{{_POUR}", "Into a clean, empty shaker, which rises to the next level."),
        Action(f"pour-shot-to-used-shaker {{{_POUR}", "Into a shaker that is not shaken yet, to its next level."),
        Action(
            "empty-shaker {hand} {shaker} {cocktail} {level1} {level2}", "Empty a shaken shaker to its empty level."
        ),
        Action("clean-shaker {hand1} {hand2} {shaker}", "Clean an empty shaker, the second hand being empty."),
        Action(
            "shake {cocktail} {ingredient1} {ingredient2} {shaker} {hand1} {hand2}",
            "Make the cocktail of its two parts, which the shaker holds, the second hand being empty.",
        ),
        Action(
            "pour-shaker-to-shot {beverage} {shot} {hand} {shaker} {level1} {level2}",
            "From a shaken shaker into a clean, empty shot glass; the shaker sinks to the level below.",
        ),
        _LOOK,
        _CHECK,
    ),
    "tyreworld": (
        Action("open {container}", "Open an unlocked, closed container."),
        Action("close {container}"),
        Action("fetch {object} {container}", "Take a thing out of an open container."),
        Action("put-away {object} {container}", "Put a thing that you have into an open container."),
        Action("loosen {nut} {hub}", "Loosen a tight nut on a hub on the ground, with the wrench."),
        Action("tighten {nut} {hub}", "Tighten a loose nut on a hub on the ground, with the wrench."),
        Action("jack-up {hub}", "Lift a hub off the ground with the jack, which stays under it."),
        Action("jack-down {hub}", "Lower a hub and have the jack again."),
        Action("undo {nut} {hub}", "Take a loose nut off a fastened hub in the air, with the wrench."),
        Action("do-up {nut} {hub}", "Put a nut that you have on an unfastened hub in the air, with the wrench."),
        Action("remove-wheel {wheel} {hub}", "Take a wheel from an unfastened hub in the air."),
        Action("put-on-wheel {wheel} {hub}", "Put a wheel that you have on a free, unfastened hub in the air."),
        Action("inflate {wheel}", "Inflate an intact wheel with the pump."),
        _LOOK,
        _CHECK,
    ),
}
"""By game."""

INTRODUCTIONS: Mapping[str, str] = {
    "gripper": "You are a robot with two grippers, which carry objects from room to room, one each.",
    "blockworld": "You are an arm that holds one block at a time, above a table on which blocks stand and are stacked.",
    "barman": "You are a barman with two hands, shot glasses, a shaker and dispensers of ingredients. A cocktail is shaken of "
    "two ingredients, which are poured into the shaker from shot glasses.",
    "tyreworld": "You change tyres. The tools and the intact wheels are in the boot, the nuts are tight on the hubs.",
}
