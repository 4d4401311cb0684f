"""A small house, and observations that somebody wrote for rulings in it: right ones and wrong ones."""

from typing import Literal, NamedTuple

from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement, Rulebook, Script, Sight

_THINGS = ("blue mug", "mug", "red key", "apple", "torch", "letter")
_PLACES = ("kitchen", "hall", "cellar")
_BOXES = ("fridge", "drawer")


def _set(path: str, value: object) -> Effect:
    return Effect.model_validate({"op": "set", "path": path, "value": value})


_IN_REACH = Requirement(
    condition="state.boxes[box].at == state.you.at", kind=MistakeKind.PLACE, hint="There is no {box} here."
)

HOUSE = Script(
    introduction="You stand in the kitchen of an old house. A brass lantern hangs outside.",
    environment={
        "you": {"at": "kitchen", "holding": []},
        "rooms": {"kitchen": ["blue mug", "fridge"], "hall": ["torch", "drawer"], "cellar": ["mug"]},
        "boxes": {
            "fridge": {"at": "kitchen", "open": False, "things": ["apple"]},
            "drawer": {"at": "hall", "open": False, "things": ["red key"]},
        },
        "texts": {"letter": "Error: the door is locked. You take the train."},
        "lamp": "off",
    },
    goal="Find the letter.",
    completion_conditions=("you hold the apple", "you are in the cellar"),
    actions=(
        ActionSpec(
            name="go to {room}",
            pattern="go to (.+)",
            parameters={"room": _PLACES},
            requires=(Requirement(condition="state.you.at != room", hint="You are in the {room} already."),),
            effects=(_set("/you/at", "{room}"),),
            reveals="You are in the {room} now.",
        ),
        ActionSpec(
            name="open {box}",
            pattern="open (.+)",
            parameters={"box": _BOXES},
            requires=(_IN_REACH, Requirement(condition="!state.boxes[box].open", hint="The {box} is open already.")),
            effects=(_set("/boxes/{box}/open", value=True),),
            reveals="The {box} is open. In it: {state:/boxes/{box}/things}.",
        ),
        ActionSpec(
            name="take {thing} from {box}",
            pattern="take (.+?) from (.+)",
            parameters={"thing": _THINGS, "box": _BOXES},
            requires=(
                _IN_REACH,
                Requirement(condition="state.boxes[box].open", hint="The {box} is closed."),
                Requirement(condition="thing in state.boxes[box].things", hint="There is no {thing} in the {box}."),
            ),
            effects=(Effect(op=EffectOp.MOVE, from_path="/boxes/{box}/things", path="/you/holding", value="{thing}"),),
            reveals="You take the {thing}.",
        ),
        ActionSpec(
            name="turn lamp {setting}",
            pattern="turn lamp (.+)",
            parameters={"setting": ("on", "off")},
            requires=(Requirement(condition="state.lamp != setting", hint="The lamp is {setting} already."),),
            effects=(_set("/lamp", "{setting}"),),
            reveals="The lamp is {setting}.",
        ),
        ActionSpec(
            name="read {thing}",
            pattern="read (.+)",
            parameters={"thing": ("letter",)},
            reveals="It says: {state:/texts/letter}",
        ),
        ActionSpec(name="look", pattern="look", reveals="Around you: {state:/rooms/{state:/you/at}}."),
    ),
    rulebook=Rulebook(
        goal=("'apple' in state.you.holding", "state.you.at == 'cellar'"),
        sights=(
            Sight(path="/rooms/{state:/you/at}"),
            Sight(path="/you/at"),
            Sight(path="/you/holding"),
            Sight(path="/boxes/fridge/things", when="state.boxes.fridge.open && state.you.at == 'kitchen'"),
            Sight(path="/boxes/drawer/things", when="state.boxes.drawer.open && state.you.at == 'hall'"),
        ),
    ),
)


class Case(NamedTuple):
    """Somebody's words for what comes of an action."""

    action: str
    observation: str
    before: tuple[str, ...] = ()
    """Actions before it."""
    transient: bool = False


OPENED = ("open fridge",)
HOLDS = ("open fridge", "take apple from fridge")

GOOD: tuple[Case, ...] = (
    # Carried out.
    Case("open fridge", "The fridge door swings open with a sigh; inside lies a single apple."),
    Case("open fridge", "You pull the handle and the fridge opens. Cold air, and an apple on the middle shelf."),
    Case("open fridge", "The door sticks out a little now. You see an apple."),
    Case("take apple from fridge", "You take the apple. It is cold and smooth.", OPENED),
    Case("take apple from fridge", "The apple is in your hand; you are holding nothing else.", OPENED),
    Case("take apple from fridge", "You reach in and pick up the apple. Nothing else is in the fridge.", OPENED),
    Case("go to hall", "You leave the kitchen and walk into the hall. A torch stands in the corner."),
    Case("go to hall", "The hall is dark. There is a torch here, and no window to see out of."),
    Case("go to hall", "You walk to the hall without any problem. On a hook: a torch."),
    Case("look", "A blue mug stands on the table. Nothing moves."),
    Case("look", "You look around the kitchen. There is a blue mug here, nothing more."),
    Case("look", "The kitchen is quiet. You cannot see outside from here; a blue mug is all there is."),
    Case("turn lamp on", "The lamp goes on and the room is bright."),
    Case("turn lamp on", "With a click the lamp is on. It will not last forever."),
    Case("read letter", 'The letter says: "Error: the door is locked. You take the train."'),
    Case("go to cellar", "You go down to the cellar. A mug stands on the floor."),
    Case("go to cellar", "Step by step you go down into the cellar, apple in hand. A mug stands there.", HOLDS),
    Case("look", "No errors here: a blue mug, and a fridge that hums."),
    # Mistakes.
    Case("take apple from fridge", "The fridge is closed, so you cannot get at anything in it."),
    Case("take apple from fridge", "You try to take the apple, but the fridge is still shut."),
    Case("take red key from fridge", "You search the fridge, but there is no red key in it.", OPENED),
    Case("open drawer", "You look for a drawer. There is none in the kitchen."),
    Case("open drawer", "Nothing happens. There is no drawer here."),
    Case("open fridge", "The fridge is open already; its light is on.", OPENED),
    Case("open fridge", "It stands open already, and an apple lies in it.", OPENED),
    Case("go to kitchen", "You are already in the kitchen."),
    Case("go to kitchen", "You turn once around yourself: this is the kitchen, there is nowhere to go."),
    Case("turn lamp off", "The lamp is off already, so nothing changes."),
    Case("juggle mugs", "Nobody understands what you mean by that."),
    Case("juggle mugs", "That is not something you can do here."),
    Case("open cupboard", "You see no cupboard anywhere."),
    Case("take mug from fridge", "There is an apple in the fridge, but no mug.", OPENED),
    Case("go to attic", "There is no way to an attic from here."),
    # Failed for a moment.
    Case("open fridge", "You pull, but the door sticks this time. It stays shut.", transient=True),
    Case("open fridge", "Your hand slips off the handle. You could try again.", transient=True),
    Case("go to hall", "You stumble at the door and have to steady yourself for a moment.", transient=True),
    Case("turn lamp on", "The switch clicks, but the lamp stays dark; a loose contact, perhaps.", transient=True),
    Case("take apple from fridge", "The apple slips out of your fingers, back onto the shelf.", OPENED, transient=True),
)
"""Right words for the ruling."""

Fault = Literal["name", "success", "failure", "goal", "unsaid"]

BAD: tuple[tuple[Fault, Case], ...] = (
    # Names that nobody can see from here, or that exist nowhere.
    ("name", Case("open fridge", "The fridge opens. Inside you see an apple and a red key.")),
    ("name", Case("look", "You see a blue mug and, behind it, the torch.")),
    ("name", Case("look", "There is a mug here.")),
    ("name", Case("go to hall", "The hall. A torch stands here; from below, in the cellar, you hear water.")),
    ("name", Case("take apple from fridge", "The fridge is closed, and the drawer is, too.")),
    ("name", Case("open drawer", "There is no drawer here. Try the hall.")),
    ("name", Case("turn lamp on", "The lamp lights up the Red Key's brass ring.")),
    # Mistakes told as if they had worked.
    ("success", Case("take apple from fridge", "You take the apple from the fridge.")),
    ("success", Case("take apple from fridge", "You pick up the apple. It is cold.")),
    ("success", Case("take apple from fridge", "Reaching in, you grab the apple.")),
    ("success", Case("take apple from fridge", "The apple is in your hand.")),
    ("success", Case("open drawer", "The drawer slides open.")),
    ("success", Case("open drawer", "You open the drawer.")),
    ("success", Case("open drawer", "With some effort you manage to open it.")),
    ("success", Case("open fridge", "You have opened the fridge.", OPENED)),
    ("success", Case("go to kitchen", "You walk into the kitchen.")),
    ("success", Case("turn lamp off", "The lamp is off now.")),
    ("success", Case("juggle mugs", "You juggle the mugs for a while, three at a time.")),
    ("success", Case("juggle mugs", "Done.")),
    ("success", Case("take red key from fridge", "Success! The red key is yours.", OPENED)),
    ("success", Case("take red key from fridge", "You've taken the red key, though it was not easy.", OPENED)),
    # What worked, told as if it had not.
    ("failure", Case("open fridge", "Nothing happens.")),
    ("failure", Case("open fridge", "You cannot open the fridge.")),
    ("failure", Case("open fridge", "The door does not budge.")),
    ("failure", Case("open fridge", "Error: invalid command.")),
    ("failure", Case("take apple from fridge", "You try to take the apple, but it fails.", OPENED)),
    ("failure", Case("take apple from fridge", "That does not work. The fridge is in the way.", OPENED)),
    ("failure", Case("take apple from fridge", "You are unable to take the apple.", OPENED)),
    ("failure", Case("go to hall", "The way to the hall is not possible.")),
    ("failure", Case("turn lamp on", "The switch has no effect.")),
    ("failure", Case("turn lamp on", "Permission denied.")),
    # The goal, announced or denied.
    ("goal", Case("take apple from fridge", "You take the apple. The task is complete!", OPENED)),
    ("goal", Case("take apple from fridge", "You take the apple. Congratulations, you have reached the goal.", OPENED)),
    ("goal", Case("open fridge", "An apple. Mission accomplished.")),
    ("goal", Case("open fridge", "The fridge is open. Task Succeed")),
    ("goal", Case("go to cellar", "You are in the cellar. The goal is not reached yet.", HOLDS)),
    # A passing failure that is told as a success, or not at all.
    ("success", Case("open fridge", "You open the fridge on the second pull.", transient=True)),
    ("success", Case("go to hall", "You are in the hall now.", transient=True)),
    ("unsaid", Case("open fridge", "The fridge hums.", transient=True)),
    ("unsaid", Case("turn lamp on", "The lamp has a green shade.", transient=True)),
)
"""Wrong words, with what is wrong."""
