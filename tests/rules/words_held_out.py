"""More observations, written after the lexicon was first settled: it then alarmed at 3 of the right ones and found 18
of the wrong ones. What could be mended in general was mended since; the rest shows what it cannot find.
"""

from words_corpus import HOLDS, OPENED, Case, Fault

IN_HALL = ("go to hall",)

GOOD: tuple[Case, ...] = (
    Case("open fridge", "The seal gives way with a soft pop, and a light flickers on. One apple, no milk, no eggs."),
    Case("open fridge", "You tug the heavy door open. On the glass shelf sits an apple."),
    Case("take apple from fridge", "Your fingers close around the apple and you lift it out.", OPENED),
    Case("take apple from fridge", "You are holding the apple. The fridge is bare.", OPENED),
    Case("go to hall", "Your steps echo as you enter the hall. You notice a torch and a drawer built into the wall."),
    Case("go to hall", "You pass through the door. The hall is narrow: a drawer on one side, a torch on the other."),
    Case("go to cellar", "Twelve worn stairs lead down. The cellar smells of coal; somebody has left a mug here."),
    Case("look", "On the counter is a blue mug. Next to it the fridge hums, closed for now."),
    Case("look", "Nothing has moved since you last looked: a blue mug, the fridge, a scrubbed table."),
    Case("turn lamp on", "The bulb warms up slowly. You can see better at once."),
    Case("read letter", "In a shaky hand someone has written of a locked door, an error and a train."),
    Case("open drawer", "The drawer is stiff at first, then it slides out: a red key on blue felt.", IN_HALL),
    Case("open drawer", "You see a red key. Apart from that, the drawer holds only dust.", IN_HALL),
    Case("take apple from fridge", "You would like to, but the door of the fridge is shut."),
    Case("take apple from fridge", "Your hand meets cold metal. The fridge needs to be opened before anything can come out."),
    Case("take torch from fridge", "You move the apple aside and look behind it. No torch.", OPENED),
    Case("open drawer", "You glance around the kitchen, yet you find nothing of that kind."),
    Case("open fridge", "It cannot be opened any further than it is.", OPENED),
    Case("go to kitchen", "You have been standing in it the whole time."),
    Case("turn lamp off", "You press the switch, but it makes no difference: it was dark before, it is dark after."),
    Case("dance", "You are not sure how that would help, and you stay where you are."),
    Case("take everything", "You hesitate. That is too vague to act upon."),
    Case("open fridge", "The handle is greasy and you lose your grip. Perhaps on the next attempt.", transient=True),
    Case("go to hall", "A draught slams the door in your face; you have to wait a second.", transient=True),
    Case("turn lamp on", "It flickers and goes dark again.", transient=True),
)  # fmt: skip
"""Right words for the ruling."""

BAD: tuple[tuple[Fault, Case], ...] = (
    ("name", Case("open fridge", "Inside: an apple, and taped to the door a letter.")),
    ("name", Case("go to hall", "The hall. The red key glitters in the drawer.")),
    ("name", Case("look", "A blue mug, a fridge, and an apple on the table.")),
    ("name", Case("go to cellar", "The cellar is stacked with boxes; a mug and a torch lie on top.")),
    ("name", Case("take mug from fridge", "No mug in here. You left it in the cellar.", OPENED)),
    ("success", Case("take apple from fridge", "Carefully, you take the apple out.")),
    ("success", Case("take apple from fridge", "The apple now rests in your palm.")),
    ("success", Case("take apple from fridge", "Taken.")),
    ("success", Case("take apple from fridge", "A moment later you are holding an apple.")),
    ("success", Case("open drawer", "It opens without a sound.")),
    ("success", Case("open drawer", "The drawer is open; there is a red key in it.", ("look",))),
    ("success", Case("open drawer", "You pull the drawer open.")),
    ("success", Case("go to kitchen", "You arrive in the kitchen.")),
    ("success", Case("go to kitchen", "After a short walk you reach the kitchen.")),
    ("success", Case("turn lamp off", "You turn the lamp off.")),
    ("success", Case("turn lamp off", "The light goes out.")),
    ("success", Case("dance", "You dance around the table, and it is great fun.")),
    ("failure", Case("open fridge", "It is locked.")),
    ("failure", Case("open fridge", "You pull with all your might, but it stays shut.")),
    ("failure", Case("open fridge", "You can't open it.")),
    ("failure", Case("take apple from fridge", "The apple slips from your hand and you fail to catch it.", OPENED)),
    ("failure", Case("take apple from fridge", "There is no apple there.", OPENED)),
    ("failure", Case("go to hall", "The door to the hall won't open.")),
    ("failure", Case("turn lamp on", "The switch does not respond.")),
    ("failure", Case("look", "That is not a valid action.")),
    ("goal", Case("take apple from fridge", "You have the apple. That was all you were asked to do: well done, goal achieved.", OPENED)),
    ("goal", Case("go to cellar", "The cellar. Your task is not finished, however.", HOLDS)),
    ("goal", Case("look", "A blue mug and the fridge. You have completed the task.")),
    ("success", Case("take apple from fridge", "You grab the apple just in time.", OPENED, transient=True)),
    ("unsaid", Case("go to hall", "The hall is a narrow room.", transient=True)),
)  # fmt: skip
"""Wrong words, with what is wrong."""
