"""The Player: brings the world back from the task that it is shown, replays what it did, plans, and says what it
thinks.
"""

from collections.abc import Iterator, Sequence

from refinesynth.chat import parse_player
from refinesynth.rehearsal.faults import Luck
from refinesynth.rehearsal.hearing import heard
from refinesynth.rehearsal.memory import Exchange, Past, Position, opening
from refinesynth.rehearsal.reasons import meaning, reason, remedy
from refinesynth.rehearsal.scene import is_grounded, label_in
from refinesynth.rehearsal.searching import plan_of, sought
from refinesynth.rehearsal.slips import Slip, can_wait, is_due, slip
from refinesynth.rehearsal.strangers import improvise
from refinesynth.rehearsal.wording import say, sounds_refused
from refinesynth.settings.mistakes import Asked
from refinesynth.trajectory import MistakeKind, PlayerTurn

_MISTAKES = tuple(MistakeKind)


def is_task(text: str) -> bool:
    """Whether this is a first message as `chat.render_task` writes it."""
    return "\n\nGoal: " in text and "\n\nAvailable actions:\n" in text


def act(luck: Luck, task: str, chat: Sequence[tuple[str, str]], wanted: Asked | None) -> PlayerTurn:
    """The next turn, after a task as `chat.render_task` writes it and the messages (role and text) since."""
    exchanges = tuple(_exchanges(chat))
    position = _world_of(task)
    if position is None:
        return improvise(luck, task, exchanges)
    if is_grounded(position.scene.label):
        return decide(luck, heard(position, exchanges), wanted)
    return decide(luck, Past.of(position, exchanges), wanted)


def decide(luck: Luck, past: Past, wanted: Asked | None = None) -> PlayerTurn:
    """The next turn in a scene that is known; a mistake if one is wanted, or if one happens by itself.

    Nothing goes wrong by itself right after a mistake: that turn is the repair. Nor after what failed for a moment:
    that is tried again. Where a mistake's answer was put off, none is made before it.
    """
    if wanted is None and past.stumbled is None and not past.failed and luck.strikes("natural_mistake"):
        wanted = Asked(luck.pick("kind of mistake", _MISTAKES))
    longer = wanted.way if wanted is not None and wanted.way in {"late", "give_up"} else None
    made = None if wanted is None or longer or is_due(past) else slip(luck.rng("slip"), past, wanted.kind)
    if made is not None:
        return confused(luck, past, made)
    late = longer == "late" and past.stumbled is not None and can_wait(past, past.exchanges[-1].action)
    action = _looking(past.position) if late else _next(past)
    back = say(luck.rng("looking back"), "puzzled") if late else _looking_back(luck, past, leaving=longer == "give_up")
    doing = meaning(past.position, action)
    return PlayerTurn(thought=_joined(back, _looking_ahead(luck, past, action, doing)), action=action)


def confused(luck: Luck, past: Past, made: Slip) -> PlayerTurn:
    """A turn that is this mistake, made in good faith: what is meant stands where the right act would, in the words that
    a right turn has here, so that no form tells it from one.
    """
    thought = _looking_ahead(luck, past, _next(past), made.doing)
    return PlayerTurn(thought=_joined(_looking_back(luck, past), thought), action=made.action)


def _world_of(task: str) -> Position | None:
    """The opening of the scene that the task names, if its actions are the ones listed."""
    label = label_in(task)
    if label is None:
        return None
    position = opening(label)
    return position if all(f"\n- {name}" in task for name in position.scene.verbs) else None


def _exchanges(chat: Sequence[tuple[str, str]]) -> Iterator[Exchange]:
    """What was done and answered. An answer that held no action was not played, nor is what was said about it an
    observation.
    """
    action: str | None = None
    for role, text in chat:
        if role == "assistant":
            try:
                action = parse_player(text).action
            except ValueError:
                action = None
        elif action is not None:
            yield Exchange(action, text, refused=sounds_refused(text))
            action = None


def _next(past: Past) -> str:
    """The plan's next action; a look around instead, if there is no plan or that was refused just now."""
    position, plan = past.position, plan_of(past)
    if plan and plan[0] not in past.wrong:
        return plan[0]
    looking = _looking(position)
    return plan[0] if plan and looking in past.wrong else looking


def _looking(position: Position) -> str:
    """The action that only looks around."""
    return next(name for name in position.scene.verbs if "{" not in name and position.judged(name) is None)


def _looking_back(luck: Luck, past: Past, *, leaving: bool = False) -> str:
    """What the player makes of the last answer, or of the task; `leaving` what was refused for now."""
    rng, position = luck.rng("looking back"), past.position
    if not past.exchanges:
        return say(rng, "setting_out", goal=position.scene.plot.goal)
    if past.failed:
        return say(rng, "unlucky")
    wrong = _misunderstood(past)
    if wrong is None:
        return say(rng, "going_on")
    ruling = position.ruling(wrong)
    why = reason(position, wrong, ruling)
    if leaving and why:
        return say(rng, "leaving", hint=why)
    said = say(rng, f"understood_{ruling.kind}" if ruling.kind else "puzzled", hint=why)
    if ruling.kind is MistakeKind.PARAMETER and (plan := plan_of(past)):
        return _joined(said, remedy(position, wrong, plan[0]))
    return said


def _misunderstood(past: Past) -> str | None:
    """The action that was refused, just now or before a look around."""
    *before, last = past.exchanges
    if last.refused:
        return last.action
    looked = bool(before) and before[-1].refused and last.action == _looking(past.position)
    return before[-1].action if looked else None


def _looking_ahead(luck: Luck, past: Past, action: str, doing: str) -> str:
    """Why this action now, which is taken to be `doing`."""
    rng, position = luck.rng("looking ahead"), past.position
    plan = tuple(step for step in plan_of(past) if step == action or meaning(position, step) != doing)
    thing = sought(past)
    if thing is not None:
        return say(rng, "looking_for", doing=doing, thing=thing)
    if not plan:
        return say(rng, "nothing_left", doing=doing)
    if action != plan[0]:
        return say(rng, "careful", doing=doing)
    if len(plan) == 1:
        return say(rng, "last", doing=doing)
    then, ruling = meaning(position, plan[1]), position.ruling(plan[1])
    if ruling.kind is None:
        return say(rng, "useful", doing=doing, then=then)
    obstacle = reason(position, plan[1], ruling)
    known = past.stumbled is not None and obstacle == past.stumbled.text
    return say(rng, "obstructed" if obstacle and not known else "needed", doing=doing, then=then, hint=obstacle)


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
