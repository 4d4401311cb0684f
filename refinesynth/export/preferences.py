"""Pairs of a mistake and its repair in one context, as text or calls, for preference training (TRL's DPO form).

The context is what came before the mistake. Rejected is the mistaken turn, chosen the turn that repaired it
(the repairer's right after it, else the one that `rules.repairs` names): what would have been the better turn there. The
model that wrote it knew more: it had been refused meanwhile. So a pair is made only where the repair could have been the next turn in that context.

- Nothing that was accepted lies between the two: else the world is another one.
- Sentences of the repair's thought that speak of the refusal are taken out: those that admit a failure in English
  words, that say nothing but what the refusal says, or hold a word that it alone has; and what points back to them. If
  no sentence is left, there is no pair; an empty thought stays empty.
- The repair's action holds no word that the refusal alone has.

What cannot be found: an admission in other words, or in another language, that has no word of the refusal.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from refinesynth.chat import Message, render_player, render_tool_turns, render_tools, render_turns
from refinesynth.export import chat_shapes
from refinesynth.export.chat_shapes import ExportRecord, Masking
from refinesynth.rules.exchanges import Exchange, exchanges
from refinesynth.rules.name_search import words_of
from refinesynth.rules.repairs import repairs
from refinesynth.trajectory import PlayerTurn, Trajectory

UNREPAIRED: Final = "mistakes without a repair"
CHANGED: Final = "mistakes repaired only after other actions had changed the world"
HINDSIGHT: Final = "mistakes whose repair speaks or makes use of the refusal alone"
AMONG: Final = "mistakes and repairs behind another call of their message"
ALONE: Final = "mistakes that nothing of the environment comes before"

_ADMITS = re.compile(
    r"\b(?:mistake[ns]?|mistakenly|wrong(?:ly)?|errors?|erroneous|incorrect(?:ly)?|invalid|fail(?:s|ed|ure)?|misjudged|misread|misremembered"
    r"|mistyped|misspel(?:led|t)|misunderst\w+|mixed up|overlooked|forgot(?:ten)?|refus(?:ed|al)|rejected|retry|try again|sorry|oops|apolog\w+"
    r"|instead|my (?:wording|spelling|last|previous|first attempt)|(?:last|previous|earlier) (?:action|attempt|command|try|step)"
    r"|I (?:tried|attempted|assumed|wrote|thought|misplaced)|(?:should|could)(?: not|n['\u2019]t)? have|got ahead of"
    r"|not (?:understood|recogni[sz]ed|accepted|allowed|permitted|available|valid|a valid)|(?:do|does|did|could|can|will|would)(?: not|n['\u2019]t) work"
    r"|not worded|no (?:such )?(?:action|command)|(?:was|were)(?: not|n['\u2019]t)|not where I)\b",
    re.IGNORECASE,
)
"""Admissions that something went wrong."""
_POINTS_BACK = re.compile(r"(?:it|its|that|this|these|those|they|them|he|she)\b", re.IGNORECASE)
"""Beginnings of sentences that refer to the sentence before."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_LONG = 4
"""Least letters of a significant word."""
_STEM = 5
"""Letters by which common words are compared."""
_FUNCTION_WORDS = (
    "about after again anything away before cannot can't could does doesn't done don't down else even every everything first from have "
    "here into isn't it's just like make more must need needs next nothing once only over same should some something still take that "
    "their them then there these they thing things this those through until very want what when where which while will with won't work "
    "works would your happens happened possible refused worked"
)
_COMMON = frozenset(word[:_STEM] for word in _FUNCTION_WORDS.split())


@dataclass(frozen=True)
class PreferenceFormat:
    """One record for each mistake that has a repair in its own context."""

    name: str = "preference"
    reader: str = "TRL's DPOTrainer, and others that take a prompt with a chosen and a rejected answer"
    advice: dict[Masking, str] = field(
        default_factory=lambda: {
            Masking.PAIR: "One record per repaired mistake: what came before it, the mistake as `rejected`, its repair as `chosen`. TRL's "
            "DPOTrainer takes it as it is; set `max_length=None` there, or it cuts at 1,024 tokens. Train it on a model that is tuned already: "
            "pairs teach what to choose, and not how to go on after a mistake."
        }
    )

    form: Literal["react", "tools"] = "react"
    takes_calls: bool = True

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        """Pairs of one trajectory, and a reason for each mistake without a pair."""
        del masking
        steps = list(exchanges(trajectory.turns))
        for number, repair in enumerate(repairs(trajectory.draft()), start=1):
            mistake = repair.mistake
            taught = (step for step in steps if step.at == repair.retake and step.accepted and step.player.by)
            answer = next(taught, next((step for step in steps if step.at == repair.answer), None))
            between = [step for step in steps if answer is not None and mistake.at <= step.at < answer.at]
            prompt = render_turns(trajectory.script, trajectory.turns[: mistake.at])
            if mistake.player.parallel or (answer is not None and answer.player.parallel):
                yield ExportRecord({}, omitted=AMONG)
            elif answer is None:
                yield ExportRecord({}, omitted=UNREPAIRED)
            elif any(step.accepted and not step.transient for step in between):
                yield ExportRecord({}, omitted=CHANGED)
            elif prompt[-1].role != "user":
                yield ExportRecord({}, omitted=ALONE)
            elif (chosen := _foreseen(answer.player, between, prompt)) is None:
                yield ExportRecord({}, omitted=HINDSIGHT)
            else:
                masked = sum(message.role == "assistant" for message in prompt)
                data = self._pair(f"{trajectory.id}#{number}", trajectory, mistake, chosen)
                yield ExportRecord(data, trained=1, masked=masked)

    def _pair(self, name: str, trajectory: Trajectory, mistake: Exchange, chosen: PlayerTurn) -> dict[str, Any]:
        script, parallel = trajectory.script, trajectory.provenance.parallel_calls
        render = partial(render_tool_turns, parallel=parallel) if self.form == "tools" else render_turns
        before = trajectory.turns[: mistake.at]
        one, other = (render(script, (*before, turn))[-1:] for turn in (chosen, mistake.player))
        parts = {"prompt": render(script, before), "chosen": one, "rejected": other}
        tools = {"tools": render_tools(script)} if self.form == "tools" else {}
        return {"id": name, **{part: chat_shapes.prompt(messages) for part, messages in parts.items()}, **tools}


def _foreseen(repair: PlayerTurn, refused: Sequence[Exchange], prompt: Sequence[Message]) -> PlayerTurn | None:
    """The repair as it could have been written before the refusal; None if it could not."""
    revealed = {word for step in refused if step.answer is not None for word in _telling(step.answer.observation)}
    known = {word for message in prompt for word in words_of(message.content)}
    known.update(word for step in refused[:1] for word in words_of(render_player(step.player)))
    if (revealed - known) & _telling(repair.action):
        return None
    kept: list[str] = []
    cut = False
    for sentence in filter(str.strip, _SENTENCES.split(repair.thought)):
        words = _telling(sentence)
        repeats = bool(words) and words <= revealed
        follows = cut and _POINTS_BACK.match(sentence) is not None
        cut = follows or repeats or bool(words & (revealed - known)) or _ADMITS.search(sentence) is not None
        if not cut:
            kept.append(sentence)
    if not kept and repair.thought.strip():
        return None
    return repair.model_copy(update={"thought": " ".join(kept)})


def _telling(text: str) -> frozenset[str]:
    return frozenset(word for word in words_of(text) if len(word) >= _LONG and word[:_STEM] not in _COMMON)
