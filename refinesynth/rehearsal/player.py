"""Player of the rehearsal: reconstructs the world from its task, interprets the answers, plans, and words its thoughts.

A chat of function calls is read like the same chat in text. In an executed world, mistakes follow from the rules; the
words only distinguish success from a transient failure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.functions import action_of
from refinesynth.chat import PARALLEL_INSTRUCTIONS, parse_player, render_player, render_task, tool_instructions_in
from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.injected_mistakes import Slip, can_wait, is_due, slip
from refinesynth.rehearsal.openai_wire import Request, mapping
from refinesynth.rehearsal.phrasing import meaning, reason, remedy, say, sounds_refused
from refinesynth.rehearsal.replayed_history import Exchange, Past, Position, opening
from refinesynth.rehearsal.scene import is_grounded, label_in
from refinesynth.rehearsal.search_plan import plan_of, sought
from refinesynth.rehearsal.unknown_scripts import CALLS, improvise
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import MistakeKind, PlayerTurn, Script

_MISTAKES = tuple(MistakeKind)


def is_task(text: str) -> bool:
    """Return whether a text is a first message of `chat.render_task`."""
    return "\n\nGoal: " in text and "\n\nAvailable actions:\n" in text


def act(luck: Luck, task: str, chat: Sequence[tuple[str, str]], wanted: MistakeRequest | None) -> PlayerTurn:
    """Return the next turn after a task of `chat.render_task` and the later messages (role and text)."""
    if (past := _history(task, chat)) is not None:
        return decide(luck, past, wanted)
    slips = wanted is not None and CALLS.search(task) is not None
    return improvise(luck, task, tuple(_exchanges(chat)), slips=slips)


def decide(luck: Luck, past: Past, wanted: MistakeRequest | None = None) -> PlayerTurn:
    """Return the next turn in a known scene; a mistake if one is requested or occurs naturally.

    No natural mistake occurs right after a transient failure, which is retried, or right after a mistake, unless the
    player is weak. While an answer is delayed, no other mistake is made.
    """
    if wanted is None and not past.failed:
        wanted = _natural(luck, past)
    longer = wanted.style if wanted is not None and wanted.style in {"late", "give_up"} else None
    made = None if wanted is None or longer or is_due(past) else slip(luck.rng("slip"), past, wanted.kind)
    if made is not None:
        return confused(luck, past, made)
    late = longer == "late" and past.stumbled is not None and can_wait(past, past.exchanges[-1].action)
    action = _looking(past.position) if late else _next(past)
    back = say(luck.rng("looking back"), "puzzled") if late else _looking_back(luck, past, leaving=longer == "give_up")
    doing = meaning(past.position, action)
    return PlayerTurn(thought=_joined(back, _looking_ahead(luck, past, action, doing)), action=action)


_FURTHER = (0, 0, 1, 2)
"""Numbers of further calls in a message, equally likely."""


def further(luck: Luck, seen: "Seen", turn: PlayerTurn, wanted: MistakeRequest | None) -> tuple[str, ...]:
    """Return the plan's next actions, for calls in the same message; after a mistake the plan is unchanged."""
    past = _history(seen.task, seen.chat)
    if past is None or (wanted is not None and wanted.style != "fresh"):
        return ()
    plan = plan_of(past)
    right = plan[1:] if plan[:1] == (turn.action,) else plan
    return tuple(right[: luck.pick("further calls", _FURTHER)])


_TEMPTED, _PLAIN = 1.15, 0.65
"""Rates of a weak player's mistakes relative to the mean: with a tempting later step, and without."""


def _natural(luck: Luck, past: Past) -> MistakeRequest | None:
    """Return a natural mistake, if one occurs.

    A weak player tends to take the step after next too early, with the kind of mistake of that step; without such a
    step its action has a wrong form.
    """
    skill = luck.faults.skill
    if skill is None:
        strikes = past.stumbled is None and luck.strikes("natural_mistake")
        return MistakeRequest(luck.pick("kind of mistake", _MISTAKES)) if strikes else None
    following = (past.position.judged(step) for step in plan_of(past)[1:2])
    tempting = next((kind for kind in following if kind is not None), None)
    rate = (1 - skill) * (_PLAIN if tempting is None else _TEMPTED)
    return MistakeRequest(tempting or MistakeKind.PARAMETER) if luck.rng("skill").random() < rate else None


def confused(luck: Luck, past: Past, made: Slip) -> PlayerTurn:
    """Return a turn with this mistake; its thought has the form of a right turn's."""
    thought = _looking_ahead(luck, past, _next(past), made.doing)
    return PlayerTurn(thought=_joined(_looking_back(luck, past), thought), action=made.action)


def _history(task: str, chat: Sequence[tuple[str, str]]) -> Past | None:
    """Return the history of the task's scene; None for an unknown one."""
    label = label_in(task)
    if label is None or not all(f"\n- {name}" in task for name in opening(label).scene.verbs):
        return None
    return (heard if is_grounded(label) else Past.of)(opening(label), _exchanges(chat))


def _exchanges(chat: Sequence[tuple[str, str]]) -> Iterator[Exchange]:
    """Yield actions with their answers; answers without an action are omitted."""
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
    """Return the plan's next action; a look around without a plan or after its refusal."""
    position, plan = past.position, plan_of(past)
    if plan and plan[0] not in past.wrong:
        return plan[0]
    looking = _looking(position)
    return plan[0] if plan and looking in past.wrong else looking


def _looking(position: Position) -> str:
    return next(name for name in position.scene.verbs if "{" not in name and position.judged(name) is None)


def _looking_back(luck: Luck, past: Past, *, leaving: bool = False) -> str:
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
    insight = say(rng, f"understood_{ruling.kind}" if ruling.kind else "puzzled", hint=why)
    if ruling.kind is MistakeKind.PARAMETER and (plan := plan_of(past)):
        return _joined(insight, remedy(position, wrong, plan[0]))
    return insight


def _misunderstood(past: Past) -> str | None:
    *before, last = past.exchanges
    if last.refused:
        return last.action
    looked = bool(before) and before[-1].refused and last.action == _looking(past.position)
    return before[-1].action if looked else None


def _looking_ahead(luck: Luck, past: Past, action: str, doing: str) -> str:
    """Return the reason for this action, whose meaning is `doing`."""
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


_PASSING = re.compile(
    r"\b(?:this (?:time|once|moment)|(?:for|at) (?:a|one|the) moment|(?:for|right) now|just then|moment(?:s|arily)?|temporar(?:y|ily)"
    r"|tr(?:y|ies|ied|ying) (?:it |that |this )?(?:once )?again|once more|time[sd]?[ -]?out|sticks?|stuck|jam(?:s|med)?|slip(?:s|ped)?"
    r"|glitch\w*|hiccup\w*|busy|interrupt\w*)\b",
    re.IGNORECASE,
)
"""Expressions of a failure that may pass."""


def heard(start: Position, exchanges: Iterable[Exchange]) -> Past:
    """Return the history of a world from `start`, inferred from the words of the exchanges."""
    past = Past.of(start, ())
    for action, answer, *_ in exchanges:
        ruling = past.position.ruling(action)
        sounds_failed = sounds_refused(answer) or _PASSING.search(answer) is not None
        failed = ruling.kind is None and ruling.text not in answer and sounds_failed
        past = past.and_then(Exchange(action, answer, refused=ruling.kind is not None, failed=failed))
    return past


class Seen(NamedTuple):
    script: Script
    """Script of the functions; for unknown ones, as far as their definitions tell."""
    task: str
    chat: list[tuple[str, str]]
    """Role and text of each message after the task; a call is followed by its answer."""
    several: bool = False
    """True if a message may hold several calls."""


def read_calls(request: Request) -> Seen:
    """Read the chat of a request for which `plays_by_calls` is true."""
    tasks = ((at, text, tool_instructions_in(text)) for at, (_, text) in enumerate(request.messages))
    at, task, instructions = next(one for one in tasks if one[2])
    before, _, after = task.partition(instructions)
    script = _script_of(request, before.strip())
    chat: list[tuple[str, str]] = []
    waiting: list[str] = []
    for number, (role, text) in enumerate(request.messages[at + 1 :], start=at + 1):
        calls = [Call(name, _arguments(arguments)) for where, name, arguments in request.calls if where == number]
        for at, call in enumerate(calls):
            thought = "" if at else text
            waiting.append(render_player(PlayerTurn(thought=thought, action=text_of(script, call))))
        if not calls:
            if waiting:
                chat.append(("assistant", waiting.pop(0)))
            chat.append(("assistant" if role == "assistant" else "user", text))
    chat += [("assistant", text) for text in waiting]
    return Seen(script, render_task(script) + after, chat, instructions == PARALLEL_INSTRUCTIONS)


def _script_of(request: Request, task: str) -> Script:
    label = label_in(task)
    scene = None if label is None else opening(label).scene
    listed = {str(tool.get("description")) for tool in request.tools}
    introduction, found, goal = task.rpartition("\n\nGoal: ")
    words = {"introduction": introduction if found else task, "goal": (found and goal) or "?"}
    if scene is not None and all(any(one.startswith(name) for one in listed) for name in scene.verbs):
        return scene.script.model_copy(update=words)
    actions = filter(None, (action_of({"function": tool}) for tool in request.tools))
    of_tools = Script(goal="?", environment={}, completion_conditions=(), actions=tuple(actions))
    return of_tools.model_copy(update=words)


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}
