"""A trajectory as ReAct chat messages, each with its loss flag.

The one rendering that the Player, the exports, training and evaluation share (paper, section 3.3): the first user
message holds the task, a DungeonMaster's observation is a user message, a player's turn is an assistant message
`Thought: ...` / `Action: ...`. A message with `loss=False` is context; a mistake is an assistant message with
`loss=False`.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
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
"""Form of the answer, at the end of the first user message."""

FORMER_INSTRUCTIONS = f"""\
Each time, think about what you know and what to try next, then take one action. Write exactly two parts:
{_FORM}
After each action you are told what happened. If an action turns out wrong, find out why and correct it."""
"""Form of the answer in earlier versions: models went on behind it with `After action: ...`."""

_ADDED = re.compile(r"\n- `types`, only where a value is no text: (?:[^\n]|\n  )*")
"""Paragraph of the prompts for scripts that earlier versions did not have."""

STOPS = ("\nObservation:", "\nAfter action:", "\nAfter Action:")
"""Stop sequences for a player's answer. `\nThought:` is none: many models write a blank line before their first one."""

SOMEWHERE = "You are in an environment that answers each of your actions."
"""Introduction of a script that has none."""


TurnLabel = Literal["", "player", "mistake", "repair"]
"""Label of a player's turn: right, flagged as wrong, or right and by the repairer."""


class Message(NamedTuple):
    """One chat message."""

    role: Literal["user", "assistant"]
    content: str
    loss: bool
    """True if training learns to write this message."""
    label: TurnLabel = ""
    """Of an assistant's message."""


def render_action(action: ActionSpec, *, shared: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> str:
    """One line for a player with an action's form, meaning and allowed parameter values, but for those that are
    `shared`.
    """
    line = f"- {action.name}"
    if action.description:
        line += f": {action.description}"
    own = [_choice(name, values) for name, values in action.parameters.items() if values and name not in shared]
    typed = ((name, kind) for name, kind in action.types.items() if not action.parameters.get(name))
    own += [f"{{{name}}} is {kind.described()}" for name, kind in typed if kind.type != "string" or kind.optional]
    return line + (f" ({'; '.join(own)})" if own else "")


def shared_values(actions: Sequence[ActionSpec]) -> dict[str, tuple[str, ...]]:
    """Parameters of several actions that may take the same values in each of them, with these values.

    One that takes other values somewhere, or any, is not among them: what is said once of a name holds wherever it
    stands.
    """
    lists: dict[str, list[tuple[str, ...]]] = {}
    for action in actions:
        for name, values in action.parameters.items():
            lists.setdefault(name, []).append(values)
    return {name: each[0] for name, each in lists.items() if len(each) > 1 and each[0] and len(set(each)) == 1}


def render_task(script: Script) -> str:
    """The first user message: introduction, goal, available actions and how to answer.

    Values that several actions take are listed once, after the actions. The environment and the completion conditions
    are the DungeonMaster's and stay out.
    """
    return task_with_actions(script, INSTRUCTIONS)


def task_with_actions(script: Script, instructions: str) -> str:
    """Introduction, goal and available actions, and how to answer."""
    shared = shared_values(script.actions)
    lines = [render_action(action, shared=shared) for action in script.actions]
    if shared:
        lines += ("", *map(_choice, shared, shared.values()))
    listed = "\n".join(lines)
    return f"{introduced(script)}\n\nGoal: {script.goal}\n\nAvailable actions:\n{listed}\n\n{instructions}"


def as_first_worded(text: str) -> str:
    """Return a message with the instructions of earlier versions in the place of these, so that a request is known
    again by its digest in the journal of a run that was begun then.
    """
    return _ADDED.sub("", text.replace(INSTRUCTIONS, FORMER_INSTRUCTIONS))


def introduced(script: Script) -> str:
    """Return what a player is told of the place."""
    return script.introduction.strip() or SOMEWHERE


def _choice(name: str, values: Sequence[str]) -> str:
    return f"{{{name}}} is one of: {', '.join(values)}"


def render_player(turn: PlayerTurn) -> str:
    """A player's turn as the assistant message that training learns to write."""
    return f"Thought: {turn.thought}\nAction: {turn.action}"


_LABEL = re.compile(
    # Emphasis is taken off only as a pair around the label: "Thought: *perhaps* ..." keeps its asterisks.
    r"^[ \t>#]*(?:[*-][ \t]+)?(?P<mark>[*_]*)(?P<word>thought|action|observation"
    r"|after (?:(?:the|this|that|each|your) )?action)"
    # Possessive blanks, or a label without a colon before many blanks costs their square.
    r"[ \t]*+(?:(?P=mark)[ \t]*+:|:[ \t]*(?P=mark)|:)[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)


_NO_ACTION = 'there is no line that begins with "Action:"; write "Thought: ..." and then "Action: ..."'
_SEVERAL_ACTIONS = 'there is more than one "Action:"; take one action at a time'


def parse_player(text: str) -> PlayerTurn:
    """Read `Thought: ... Action: ...` as a player writes it.

    Labels may be bold or in any case. What the player makes up after its action is cut off, from a label such as
    `Observation:`, `After action:` or another `Thought:` on, and so is what follows a blank line within the action;
    quotes, `**` and backticks around it are taken off. Text before the first label is taken for the thought if there is
    no other.

    Raises:
        ValueError: No action, another directly after it, or a different one later where no observation is made up after the
            first. The message is fit to be sent back to the model.
    """
    labels, words, at = _labels(text)
    if at is None:
        raise ValueError(_NO_ACTION)
    if words[at + 1 : at + 2] == ["action"]:
        raise ValueError(_SEVERAL_ACTIONS)
    end = labels[at + 1].start() if words[at + 1 :] else len(text)
    action = _bare(text[labels[at].end() : end])
    begin = labels[words.index("thought")].end() if "thought" in words[:at] else 0
    thought = text[begin : labels[at].start()].strip()
    if not action:
        raise ValueError('the line that begins with "Action:" is empty')
    if all(word in {"thought", "action"} for word in words[at:]):
        ends = [*(label.start() for label in labels[1:]), len(text)]
        parts = zip(words[at:], labels[at:], ends[at:], strict=True)
        if any(word == "action" and _bare(text[label.end() : end]) != action for word, label, end in parts):
            raise ValueError(_SEVERAL_ACTIONS)
    return PlayerTurn(thought=thought, action=action)


def goes_on(text: str) -> bool:
    """Return whether a player's message has another label after its action, from which on `parse_player` drops it."""
    labels, _, at = _labels(text)
    return at is not None and len(labels) > at + 1


def read_player(text: str) -> PlayerTurn:
    """Read a player's turn as a record has it: the way back of `render_player`, and of what others write alike.

    Nothing is cut: the action is all that follows its label, also where `parse_player` would leave some of it out.

    Raises:
        ValueError: There is no action.
    """
    thought, separator, action = text.partition("\nAction: ")
    if separator and thought.startswith("Thought: "):
        return PlayerTurn(thought=thought.removeprefix("Thought: "), action=action)
    labels, _, at = _labels(text)
    if at is None or not text[labels[at].end() :].strip():
        raise ValueError(_NO_ACTION)
    return PlayerTurn(thought=split_thought(text)[0], action=text[labels[at].end() :].strip())


def split_thought(text: str) -> tuple[str, str]:
    """Return what a player thought, without its label, and the rest of its message as it stands, from `Action:` on.

    Nothing else is lost: what stands before the label belongs to the thought. All is rest where there is no action, or
    no thought.
    """
    labels, words, at = _labels(text)
    if at is None:
        return "", text
    begin = labels[0].end() if words[0] == "thought" and not text[: labels[0].start()].strip() else 0
    thought = text[begin : labels[at].start()].strip()
    return (thought, text[labels[at].start() :]) if thought else ("", text)


def thinking_in(text: str) -> Split:
    """A model's thinking and the rest of its message; one that begins with the label of its thought holds none apart."""
    return Split("", text, None) if text.lstrip().startswith("Thought:") else split_thinking(text)


def action_label(text: str) -> int | None:
    """Index at which the label of the action begins in a player's message; None if there is none."""
    labels, _, at = _labels(text)
    return None if at is None else labels[at].start()


def _labels(text: str) -> tuple[list[re.Match[str]], list[str], int | None]:
    """All labels, their words, and which of them begins the action."""
    labels = list(_LABEL.finditer(text))
    words = [label["word"].casefold() for label in labels]
    return labels, words, next((k for k, word in enumerate(words) if word == "action"), None)


_AROUND = (
    ("**", "**"),
    ("```", "```"),
    ("``", "``"),
    ("`", "`"),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("\u2018", "\u2019"),
)
"""Characters that models put around an action, before and after."""

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def _bare(action: str) -> str:
    """The first paragraph of an action, without what is put around it."""
    bare = _BLANK_LINE.split(_unwrapped(action.strip()), maxsplit=1)[0].strip()
    return bare if bare == action else _bare(bare)


def _unwrapped(action: str) -> str:
    for opening, closing in _AROUND:
        inner = action[len(opening) : -len(closing)]
        # With another mark inside, the outer ones need not be a pair: `a` or `b`.
        if action == f"{opening}{inner}{closing}" and opening not in inner and closing not in inner:
            return inner.strip()
    return action


def label_of(turn: PlayerTurn, *, mistake: bool) -> TurnLabel:
    """Return the label of a player's turn."""
    return "mistake" if mistake else "player" if turn.by is None else "repair"


def to_messages(trajectory: Trajectory) -> list[Message]:
    """A whole trajectory as chat messages, the closing observation included.

    An opening observation joins the first user message. Assistant messages are trained on unless they are mistakes;
    user messages never are.
    """
    return render_turns(trajectory.script, trajectory.turns)


def render_turns(script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[Message]:
    """Any number of turns as chat messages; what a player sees when it is about to act.

    Adjacent messages of one role are joined with a blank line, so that roles always alternate.
    """
    mistakes = set(flagged_turns(turns))
    messages = [Message("user", render_task(script), loss=False)]
    for at, turn in enumerate(turns):
        if isinstance(turn, PlayerTurn):
            label = label_of(turn, mistake=at in mistakes)
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
