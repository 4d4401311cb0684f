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
from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.injected_mistakes import InjectedMistake, can_wait, draw_mistake, is_due
from refinesynth.rehearsal.openai_wire import Request, mapping
from refinesynth.rehearsal.phrasing import correction, infinitive, is_refusal, mistake_reason, say
from refinesynth.rehearsal.replayed_history import Exchange, History, Position, initial_position
from refinesynth.rehearsal.scene import is_grounded, label_in
from refinesynth.rehearsal.search_plan import hidden_target, plan_of
from refinesynth.rehearsal.unknown_scripts import CALLS, improvise
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import MistakeKind, PlayerTurn, Script

_MISTAKES = tuple(MistakeKind)


def is_task(text: str) -> bool:
    """Return whether a text is a first message of `chat.render_task`."""
    return "\n\nGoal: " in text and "\n\nAvailable actions:\n" in text


def act(draws: Draws, task: str, chat: Sequence[tuple[str, str]], wanted: MistakeRequest | None) -> PlayerTurn:
    """Return the next turn after a task of `chat.render_task` and the later messages (role and text)."""
    if (history := _history_of(task, chat)) is not None:
        return decide(draws, history, wanted)
    slips = wanted is not None and CALLS.search(task) is not None
    return improvise(draws, task, tuple(_exchanges(chat)), misname=slips)


def decide(draws: Draws, history: History, wanted: MistakeRequest | None = None) -> PlayerTurn:
    """Return the next turn in a known scene; a mistake if one is requested or occurs naturally.

    No natural mistake occurs right after a transient failure, which is retried, or right after a mistake, unless the
    player is weak. While an answer is delayed, no other mistake is made.
    """
    if wanted is None and not history.last_failed:
        wanted = _natural_mistake(draws, history)
    way = wanted.style if wanted is not None and wanted.style in {"late", "give_up"} else None
    slip = None if wanted is None or way or is_due(history) else draw_mistake(draws.rng("slip"), history, wanted.kind)
    if slip is not None:
        return mistaken_turn(draws, history, slip)
    late = way == "late" and history.last_refusal is not None and can_wait(history, history.exchanges[-1].action)
    action = _look_around(history.position) if late else _next_action(history)
    back = say(draws.rng("looking back"), "puzzled") if late else _look_back(draws, history, leaving=way == "give_up")
    doing = infinitive(history.position, action)
    return PlayerTurn(thought=_joined(back, _look_ahead(draws, history, action, doing)), action=action)


_FURTHER_CALL_COUNTS = (0, 0, 1, 2)
"""Numbers of further calls in a message, equally likely."""


def further_calls(draws: Draws, view: "PlayerView", turn: PlayerTurn, wanted: MistakeRequest | None) -> tuple[str, ...]:
    """Return the plan's next actions, for calls in the same message; after a mistake the plan is unchanged."""
    history = _history_of(view.task, view.chat)
    if history is None or (wanted is not None and wanted.style != "fresh"):
        return ()
    plan = plan_of(history)
    right = plan[1:] if plan[:1] == (turn.action,) else plan
    return tuple(right[: draws.pick("further calls", _FURTHER_CALL_COUNTS)])


_TEMPTED_RATE, _PLAIN_RATE = 1.15, 0.65
"""Rates of a weak player's mistakes relative to the mean: with a tempting later step, and without."""


def _natural_mistake(draws: Draws, history: History) -> MistakeRequest | None:
    """Return a natural mistake, if one occurs.

    A weak player tends to take the step after next too early, with the kind of mistake of that step; without such a
    step its action has a wrong form.
    """
    skill = draws.faults.skill
    if skill is None:
        occurs = history.last_refusal is None and draws.has_fault("natural_mistake")
        return MistakeRequest(draws.pick("kind of mistake", _MISTAKES)) if occurs else None
    following = (history.position.mistake_kind(step) for step in plan_of(history)[1:2])
    tempting = next((kind for kind in following if kind is not None), None)
    rate = (1 - skill) * (_PLAIN_RATE if tempting is None else _TEMPTED_RATE)
    return MistakeRequest(tempting or MistakeKind.PARAMETER) if draws.rng("skill").random() < rate else None


def mistaken_turn(draws: Draws, history: History, mistake: InjectedMistake) -> PlayerTurn:
    """Return a turn with this mistake; its thought has the form of a right turn's."""
    thought = _look_ahead(draws, history, _next_action(history), mistake.doing)
    return PlayerTurn(thought=_joined(_look_back(draws, history), thought), action=mistake.action)


def _history_of(task: str, chat: Sequence[tuple[str, str]]) -> History | None:
    """Return the history of the task's scene; None for an unknown one."""
    label = label_in(task)
    if label is None or not all(f"\n- {name}" in task for name in initial_position(label).scene.verbs):
        return None
    return (inferred_history if is_grounded(label) else History.of)(initial_position(label), _exchanges(chat))


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
            yield Exchange(action, text, refused=is_refusal(text))
            action = None


def _next_action(history: History) -> str:
    """Return the plan's next action; a look around without a plan or after its refusal."""
    position, plan = history.position, plan_of(history)
    if plan and plan[0] not in history.refused_actions:
        return plan[0]
    look_around = _look_around(position)
    return plan[0] if plan and look_around in history.refused_actions else look_around


def _look_around(position: Position) -> str:
    return next(name for name in position.scene.verbs if "{" not in name and position.mistake_kind(name) is None)


def _look_back(draws: Draws, history: History, *, leaving: bool = False) -> str:
    rng, position = draws.rng("looking back"), history.position
    if not history.exchanges:
        return say(rng, "setting_out", goal=position.scene.plot.goal)
    if history.last_failed:
        return say(rng, "unlucky")
    wrong_action = _last_mistake(history)
    if wrong_action is None:
        return say(rng, "going_on")
    ruling = position.ruling(wrong_action)
    reason = mistake_reason(position, wrong_action, ruling)
    if leaving and reason:
        return say(rng, "leaving", hint=reason)
    insight = say(rng, f"understood_{ruling.kind}" if ruling.kind else "puzzled", hint=reason)
    if ruling.kind is MistakeKind.PARAMETER and (plan := plan_of(history)):
        return _joined(insight, correction(position, wrong_action, plan[0]))
    return insight


def _last_mistake(history: History) -> str | None:
    *earlier, last = history.exchanges
    if last.refused:
        return last.action
    looked_around = bool(earlier) and earlier[-1].refused and last.action == _look_around(history.position)
    return earlier[-1].action if looked_around else None


def _look_ahead(draws: Draws, history: History, action: str, doing: str) -> str:
    """Return the reason for this action, whose meaning is `doing`."""
    rng, position = draws.rng("looking ahead"), history.position
    plan = tuple(step for step in plan_of(history) if step == action or infinitive(position, step) != doing)
    thing = hidden_target(history)
    if thing is not None:
        return say(rng, "looking_for", doing=doing, thing=thing)
    if not plan:
        return say(rng, "nothing_left", doing=doing)
    if action != plan[0]:
        return say(rng, "careful", doing=doing)
    if len(plan) == 1:
        return say(rng, "last", doing=doing)
    next_step, ruling = infinitive(position, plan[1]), position.ruling(plan[1])
    if ruling.kind is None:
        return say(rng, "useful", doing=doing, then=next_step)
    obstacle = mistake_reason(position, plan[1], ruling)
    is_known = history.last_refusal is not None and obstacle == history.last_refusal.text
    return say(rng, "obstructed" if obstacle and not is_known else "needed", doing=doing, then=next_step, hint=obstacle)


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


_TRANSIENT_WORDS = re.compile(
    r"\b(?:this (?:time|once|moment)|(?:for|at) (?:a|one|the) moment|(?:for|right) now|just then|moment(?:s|arily)?|temporar(?:y|ily)"
    r"|tr(?:y|ies|ied|ying) (?:it |that |this )?(?:once )?again|once more|time[sd]?[ -]?out|sticks?|stuck|jam(?:s|med)?|slip(?:s|ped)?"
    r"|glitch\w*|hiccup\w*|busy|interrupt\w*)\b",
    re.IGNORECASE,
)
"""Expressions of a failure that may pass."""


def inferred_history(start: Position, exchanges: Iterable[Exchange]) -> History:
    """Return the history of a world from `start`, inferred from the words of the exchanges."""
    history = History.of(start, ())
    for action, answer, *_ in exchanges:
        ruling = history.position.ruling(action)
        sounds_failed = is_refusal(answer) or _TRANSIENT_WORDS.search(answer) is not None
        failed = ruling.kind is None and ruling.text not in answer and sounds_failed
        history = history.with_exchange(Exchange(action, answer, refused=ruling.kind is not None, failed=failed))
    return history


class PlayerView(NamedTuple):
    script: Script
    """Script of the functions; for unknown ones, as far as their definitions tell."""
    task: str
    chat: list[tuple[str, str]]
    """Role and text of each message after the task; a call is followed by its answer."""
    parallel: bool = False
    """True if a message may hold several calls."""


def read_calls(request: Request) -> PlayerView:
    """Read the chat of a request for which `plays_by_calls` is true."""
    tasks = ((index, text, tool_instructions_in(text)) for index, (_, text) in enumerate(request.messages))
    index, task, instructions = next(entry for entry in tasks if entry[2])
    introduction, _, after = task.partition(instructions)
    script = _script_of(request, introduction.strip())
    chat: list[tuple[str, str]] = []
    pending: list[str] = []
    for number, (role, text) in enumerate(request.messages[index + 1 :], start=index + 1):
        calls = [Call(name, _arguments(arguments)) for message, name, arguments in request.calls if message == number]
        for index, call in enumerate(calls):
            thought = "" if index else text
            pending.append(render_player(PlayerTurn(thought=thought, action=text_of(script, call))))
        if not calls:
            if pending:
                chat.append(("assistant", pending.pop(0)))
            chat.append(("assistant" if role == "assistant" else "user", text))
    chat += [("assistant", text) for text in pending]
    return PlayerView(script, render_task(script) + after, chat, instructions == PARALLEL_INSTRUCTIONS)


def _script_of(request: Request, task: str) -> Script:
    label = label_in(task)
    scene = None if label is None else initial_position(label).scene
    listed = {str(tool.get("description")) for tool in request.tools}
    introduction, separator, goal = task.rpartition("\n\nGoal: ")
    words = {"introduction": introduction if separator else task, "goal": (separator and goal) or "?"}
    if scene is not None and all(any(text.startswith(name) for text in listed) for name in scene.verbs):
        return scene.script.model_copy(update=words)
    actions = filter(None, (action_of({"function": tool}) for tool in request.tools))
    script = Script(goal="?", environment={}, completion_conditions=(), actions=tuple(actions))
    return script.model_copy(update=words)


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}
