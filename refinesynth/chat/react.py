"""Trajectories as ReAct chat messages with loss flags.

The Player, the exports, training and evaluation share this rendering (paper, section 3.3): the first user message holds
the task, a DungeonMaster's observation is a user message, and a player's turn is an assistant message `Thought: ...` /
`Action: ...`. A message with `loss=False` is context; a mistake is an assistant message with `loss=False`.
"""

import re
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from refinesynth.text.thinking import Split, split_thinking
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, PlayerTurn, Script, Trajectory, flagged_turns

_FORM = """\
Thought: your reasoning
Action: one available action, with every placeholder in braces replaced by a value; case counts"""

INSTRUCTIONS = f"""\
After each action you are told what happened. If an action turns out wrong, find out why and correct it.
Each time, think about what you know and what to try next, then take one action. Write exactly two lines and nothing else:
{_FORM}"""
"""Description of the answer's form, at the end of the first user message."""

FORMER_INSTRUCTIONS = f"""\
Each time, think about what you know and what to try next, then take one action. Write exactly two parts:
{_FORM}
After each action you are told what happened. If an action turns out wrong, find out why and correct it."""
"""Description in earlier versions, which led models to continue with `After action: ...`."""

_TYPES_BEGINNING = "\n- `types`, only where a value is no text: "
_TYPES_PARAGRAPH = re.compile(_TYPES_BEGINNING + r"(?:[^\n]|\n  )*")
"""Paragraph of the script prompts that earlier versions did not have."""

STOPS = ("\nObservation:", "\nAfter action:", "\nAfter Action:")
r"""Stop sequences of a player's answer. `\nThought:` is not among them: many models put a blank line before it."""

SOMEWHERE = "You are in an environment that answers each of your actions."
"""Default introduction of a script."""


MessageLabel = Literal["", "player", "mistake", "repair"]
"""Label of a player's turn: right, flagged as wrong, or right and by the repairer. Empty for a user message."""


class Message(NamedTuple):
    """One chat message."""

    role: Literal["user", "assistant"]
    content: str
    loss: bool
    """True if training learns to write this message."""
    label: MessageLabel = ""
    """Label of an assistant's message."""


def render_action(action: ActionSpec, *, shared: Collection[str] = ()) -> str:
    """Return the line for a player with an action's form, meaning and allowed values, except for `shared` parameters."""
    line = f"- {action.name}"
    if action.description:
        line += f": {action.description}"
    details = [_choice(name, values) for name, values in action.parameters.items() if values and name not in shared]
    typed = ((name, kind) for name, kind in action.types.items() if not action.parameters.get(name))
    details += [f"{{{name}}} is {kind.to_words()}" for name, kind in typed if kind.type != "string" or kind.optional]
    return line + (f" ({'; '.join(details)})" if details else "")


def shared_values(actions: Sequence[ActionSpec]) -> dict[str, tuple[str, ...]]:
    """Return the parameters that have the same allowed values in all of several actions, with these values.

    A parameter with other or open values in some action is not shared, because the list applies wherever the name
    occurs.
    """
    lists: dict[str, list[tuple[str, ...]]] = {}
    for action in actions:
        # A placeholder that nothing is stated about is as open as one without values.
        for name in dict.fromkeys((*action.parameters, *action.placeholders)):
            lists.setdefault(name, []).append(action.parameters.get(name, ()))
    return {name: group[0] for name, group in lists.items() if len(group) > 1 and group[0] and len(set(group)) == 1}


def render_task(script: Script) -> str:
    """Return the first user message: introduction, goal, available actions and the answer's form.

    Values that several actions share are listed once, after the actions. The environment and the completion conditions
    are for the DungeonMaster only.
    """
    return task_with_actions(script, INSTRUCTIONS)


def task_with_actions(script: Script, instructions: str) -> str:
    """Return a first user message: introduction, goal and available actions of the script, then `instructions`."""
    shared = shared_values(script.actions)
    lines = [render_action(action, shared=shared) for action in script.actions]
    if shared:
        lines += ("", *map(_choice, shared, shared.values()))
    listed = "\n".join(lines)
    return f"{introduced(script)}\n\nGoal: {script.goal}\n\nAvailable actions:\n{listed}\n\n{instructions}"


def with_former_instructions(text: str) -> str:
    """Return a message with the instructions of earlier versions, so its digest identifies the request in an older
    run's journal.
    """
    text = text.replace(INSTRUCTIONS, FORMER_INSTRUCTIONS)
    # The search for the paragraph's beginning takes a quarter of the expression's time.
    return _TYPES_PARAGRAPH.sub("", text) if _TYPES_BEGINNING in text else text


def introduced(script: Script) -> str:
    """Return the description of the place for a player."""
    return script.introduction.strip() or SOMEWHERE


def _choice(name: str, values: Sequence[str]) -> str:
    return f"{{{name}}} is one of: {', '.join(values)}"


def render_player(turn: PlayerTurn) -> str:
    """Return a player's turn as the assistant message that training learns to write."""
    return f"Thought: {turn.thought}\nAction: {turn.action}"


_LABEL = re.compile(
    # Markup is removed only as a pair around the label: "Thought: *perhaps* ..." keeps its asterisks.
    r"^[ \t>#]*(?:[*-][ \t]+)?(?P<mark>[*_]*)(?P<word>thought|action|observation"
    r"|after (?:(?:the|this|that|each|your) )?action)"
    # Possessive blanks: a label without a colon before many blanks would cost quadratic time.
    r"[ \t]*+(?:(?P=mark)[ \t]*+:|:[ \t]*(?P=mark)|:)[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)


_NO_ACTION = 'there is no line that begins with "Action:"; write "Thought: ..." and then "Action: ..."'
_SEVERAL_ACTIONS = 'there is more than one "Action:"; take one action at a time'


def parse_player(text: str) -> PlayerTurn:
    """Read `Thought: ... Action: ...` from a player's answer.

    Labels may be bold or in any case. Text that the player invents after its action is cut off, from a label such as
    `Observation:`, `After action:` or another `Thought:` on, or after a blank line within the action. Quotes, `**` and
    backticks around the action are removed. Text before the first label is the thought if there is no other.

    Raises:
        ValueError: There is no action or an empty one, another one right after it, or a different one later without an
            invented observation anywhere after the first. The message is feedback to the model.
    """
    labels, words, action_index = _labels(text)
    if action_index is None:
        raise ValueError(_NO_ACTION)
    if words[action_index + 1 : action_index + 2] == ["action"]:
        raise ValueError(_SEVERAL_ACTIONS)
    end = labels[action_index + 1].start() if words[action_index + 1 :] else len(text)
    action = _strip_wrapping(text[labels[action_index].end() : end])
    start = labels[words.index("thought")].end() if "thought" in words[:action_index] else 0
    thought = text[start : labels[action_index].start()].strip()
    if not action:
        raise ValueError('the line that begins with "Action:" is empty')
    if all(word in {"thought", "action"} for word in words[action_index:]):
        ends = [*(label.start() for label in labels[1:]), len(text)]
        parts = zip(words[action_index:], labels[action_index:], ends[action_index:], strict=True)
        if any(word == "action" and _strip_wrapping(text[label.end() : end]) != action for word, label, end in parts):
            raise ValueError(_SEVERAL_ACTIONS)
    return PlayerTurn(thought=thought, action=action)


def continues_after_action(text: str) -> bool:
    """Return whether another label follows the action; `parse_player` drops the text from there on."""
    labels, _, action_index = _labels(text)
    return action_index is not None and len(labels) > action_index + 1


def read_player(text: str) -> PlayerTurn:
    """Read a player's turn from a record, as written by `render_player` and similar programs.

    Nothing is cut: the action is all text after its label, including text that `parse_player` would drop.

    Raises:
        ValueError: There is no action.
    """
    thought, separator, action = text.partition("\nAction: ")
    if separator and thought.startswith("Thought: "):
        return PlayerTurn(thought=thought.removeprefix("Thought: "), action=action)
    labels, _, action_index = _labels(text)
    if action_index is None or not text[labels[action_index].end() :].strip():
        raise ValueError(_NO_ACTION)
    return PlayerTurn(thought=split_thought(text)[0], action=text[labels[action_index].end() :].strip())


def split_thought(text: str) -> tuple[str, str]:
    """Return a player's thought without its label, and the rest of its message from `Action:` on, unchanged.

    Text before the label belongs to the thought. Without an action or a thought, all text is rest.
    """
    labels, words, action_index = _labels(text)
    if action_index is None:
        return "", text
    start = labels[0].end() if words[0] == "thought" and not text[: labels[0].start()].strip() else 0
    thought = text[start : labels[action_index].start()].strip()
    return (thought, text[labels[action_index].start() :]) if thought else ("", text)


def thinking_in(text: str) -> Split:
    """Return a model's reasoning and the rest of its message; a message that begins with a thought's label has none."""
    return Split("", text, None) if text.lstrip().startswith("Thought:") else split_thinking(text)


def action_label(text: str) -> int | None:
    """Return the index of the action's label in a player's message; None if there is none."""
    labels, _, action_index = _labels(text)
    return None if action_index is None else labels[action_index].start()


def _labels(text: str) -> tuple[list[re.Match[str]], list[str], int | None]:
    """Return all labels, their words, and the number of the one that begins the action."""
    labels = list(_LABEL.finditer(text))
    words = [label["word"].casefold() for label in labels]
    return labels, words, next((index for index, word in enumerate(words) if word == "action"), None)


_WRAPPERS = (*((mark, mark) for mark in ("**", "```", "``", "`", '"', "'")), ("“", "”"), ("\u2018", "\u2019"))
"""Characters that models put before and after an action."""

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def _strip_wrapping(action: str) -> str:
    """Return the first paragraph of an action without quotes and markup around it."""
    bare = _BLANK_LINE.split(_unwrap(action.strip()), maxsplit=1)[0].strip()
    return bare if bare == action else _strip_wrapping(bare)


def _unwrap(action: str) -> str:
    for opening, closing in _WRAPPERS:
        inner = action[len(opening) : -len(closing)]
        # With the same mark inside, the outer ones may not be a pair: `a` or `b`.
        if action == f"{opening}{inner}{closing}" and opening not in inner and closing not in inner:
            return inner.strip()
    return action


def label_of(turn: PlayerTurn, *, mistake: bool) -> MessageLabel:
    """Return the label of a player's turn."""
    return "mistake" if mistake else "player" if turn.by is None else "repair"


def to_messages(trajectory: Trajectory) -> list[Message]:
    """Return a whole trajectory as chat messages, including the last observation.

    An opening observation is part of the first user message. Assistant messages except mistakes are trained on; user
    messages never are.
    """
    return render_turns(trajectory.script, trajectory.turns)


def render_turns(script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[Message]:
    """Return any number of turns as chat messages: the player's view before its next turn.

    Adjacent messages of one role are joined by a blank line, so roles always alternate.
    """
    mistakes = set(flagged_turns(turns))
    messages = [Message("user", render_task(script), loss=False)]
    for index, turn in enumerate(turns):
        if isinstance(turn, PlayerTurn):
            label = label_of(turn, mistake=index in mistakes)
            message = Message("assistant", render_player(turn), label != "mistake", label)
        else:
            message = Message("user", turn.observation, loss=False)
        last = messages[-1]
        if last.role == message.role:
            decisive = message if last.loss else last
            messages[-1] = decisive._replace(content=f"{last.content}\n\n{message.content}")
        else:
            messages.append(message)
    return messages
