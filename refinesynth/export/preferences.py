"""Pairs of a mistake and its repair in one context, as text or calls, for preference training (TRL's DPO form).

The context is the conversation before the mistake. The rejected answer is the mistaken turn. The chosen answer is its
repair: the accepted turn of the repairer, or else the turn that `rules.repairs` names. The writer of the repair knew the
refusal of the mistake. Hence a pair requires that the repair could have been the next turn in the context:

- No accepted action lies between mistake and repair, because it would change the world.
- Sentences of the repair's thought about the refusal are removed: sentences that admit a failure in English, repeat the
  refusal, or contain a significant word of the refusal alone; and following sentences that refer to them. Without a
  remaining sentence there is no pair; an empty thought stays empty.
- The repair's action is not the mistake's.
- The repair's action contains no significant word of the refusal alone.

Not detected: an admission in other words, or in another language, without a word of the refusal.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from refinesynth.actions.matching import action_key
from refinesynth.chat import Message, render_player, render_tool_turns, render_tools, render_turns
from refinesynth.export import chat_shapes
from refinesynth.export.chat_shapes import ExportRecord, Masking
from refinesynth.rules.name_search import words_of
from refinesynth.rules.repairs import repairs
from refinesynth.rules.rule import Exchange, exchanges
from refinesynth.trajectory import PlayerTurn, Trajectory

UNREPAIRED: Final = "mistakes without a repair"
CHANGED: Final = "mistakes repaired only after other actions had changed the world"
HINDSIGHT: Final = "mistakes whose repair speaks or makes use of the refusal alone"
PARALLEL: Final = "mistakes and repairs behind another call of their message"
SAME: Final = "mistakes repaired by the same action"
NO_CONTEXT: Final = "mistakes that nothing of the environment comes before"

_ADMITS = re.compile(
    r"\b(?:mistake[ns]?|mistakenly|wrong(?:ly)?|errors?|erroneous|incorrect(?:ly)?|invalid|fail(?:s|ed|ure)?|misjudged|misread|misremembered"
    r"|mistyped|misspel(?:led|t)|misunderst\w+|mixed up|overlooked|forgot(?:ten)?|refus(?:ed|al)|rejected|retry|try again|sorry|oops|apolog\w+"
    r"|instead|my (?:wording|spelling|last|previous|first attempt)|(?:last|previous|earlier) (?:action|attempt|command|try|step)"
    r"|I (?:tried|attempted|assumed|wrote|thought|misplaced)|(?:should|could)(?: not|n['\u2019]t)? have|got ahead of"
    r"|not (?:understood|recogni[sz]ed|accepted|allowed|permitted|available|valid|a valid)|(?:do|does|did|could|can|will|would)(?: not|n['\u2019]t) work"
    r"|not worded|no (?:such )?(?:action|command)|(?:was|were)(?: not|n['\u2019]t)|not where I)\b",
    re.IGNORECASE,
)
"""English words of an admitted failure."""
_POINTS_BACK = re.compile(r"(?:it|its|that|this|these|those|they|them|he|she)\b", re.IGNORECASE)
"""Pronouns at the beginning of sentences that refer to the preceding sentence."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_MIN_LENGTH = 4
"""Minimum length of a significant word, in letters."""
_STEM = 5
"""Length of the prefix by which words are compared with function words, in letters."""
_FUNCTION_WORDS = (
    "about after again anything away before cannot can't could does doesn't done don't down else even every everything first from have "
    "here into isn't it's just like make more must need needs next nothing once only over same should some something still take that "
    "their them then there these they thing things this those through until very want what when where which while will with won't work "
    "works would your happens happened possible refused worked"
)
_COMMON = frozenset(word[:_STEM] for word in _FUNCTION_WORDS.split())


@dataclass(frozen=True)
class PreferenceFormat:
    """Preference pairs: one record for each mistake with a repair that fits the mistake's context."""

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
        """Yield the pairs of one trajectory, and a reason for each mistake without a pair."""
        del masking
        steps = list(exchanges(trajectory.turns))
        for number, repair in enumerate(repairs(trajectory.draft()), start=1):
            mistake = repair.mistake
            repairer_steps = (
                step for step in steps if step.turn == repair.next_player and step.accepted and step.player.by
            )
            answer = next(repairer_steps, next((step for step in steps if step.turn == repair.answer), None))
            between = [step for step in steps if answer is not None and mistake.turn <= step.turn < answer.turn]
            prompt = render_turns(trajectory.script, trajectory.turns[: mistake.turn])
            if mistake.player.parallel or (answer is not None and answer.player.parallel):
                yield ExportRecord({}, omitted=PARALLEL)
            elif answer is None:
                yield ExportRecord({}, omitted=UNREPAIRED)
            elif any(step.accepted and not step.transient for step in between):
                yield ExportRecord({}, omitted=CHANGED)
            elif action_key(trajectory.script, answer.player.action) == action_key(
                trajectory.script, mistake.player.action
            ):
                yield ExportRecord({}, omitted=SAME)
            elif prompt[-1].role != "user":
                yield ExportRecord({}, omitted=NO_CONTEXT)
            elif (chosen := _without_hindsight(answer.player, between, prompt)) is None:
                yield ExportRecord({}, omitted=HINDSIGHT)
            else:
                masked = sum(message.role == "assistant" for message in prompt)
                data = self._pair(f"{trajectory.id}#{number}", trajectory, mistake, chosen)
                yield ExportRecord(data, trained=1, masked=masked)

    def _pair(self, name: str, trajectory: Trajectory, mistake: Exchange, chosen: PlayerTurn) -> dict[str, Any]:
        script, parallel = trajectory.script, trajectory.provenance.parallel_calls
        render = partial(render_tool_turns, parallel=parallel) if self.form == "tools" else render_turns
        before = trajectory.turns[: mistake.turn]
        accepted, rejected = (render(script, (*before, turn))[-1:] for turn in (chosen, mistake.player))
        parts = {"prompt": render(script, before), "chosen": accepted, "rejected": rejected}
        tools = {"tools": render_tools(script)} if self.form == "tools" else {}
        return {"id": name, **{part: chat_shapes.prompt(messages) for part, messages in parts.items()}, **tools}


def _without_hindsight(repair: PlayerTurn, refused: Sequence[Exchange], prompt: Sequence[Message]) -> PlayerTurn | None:
    """Return the repair without the sentences about the refusal; None if it depends on the refusal."""
    revealed = {word for step in refused if step.answer is not None for word in _significant(step.answer.observation)}
    known = {word for message in prompt for word in words_of(message.content)}
    known.update(word for step in refused[:1] for word in words_of(render_player(step.player)))
    if (revealed - known) & _significant(repair.action):
        return None
    sentences: list[str] = []
    cut = False
    for sentence in filter(str.strip, _SENTENCES.split(repair.thought)):
        words = _significant(sentence)
        repeats = bool(words) and words <= revealed
        follows = cut and _POINTS_BACK.match(sentence) is not None
        cut = follows or repeats or bool(words & (revealed - known)) or _ADMITS.search(sentence) is not None
        if not cut:
            sentences.append(sentence)
    if not sentences and repair.thought.strip():
        return None
    return repair.model_copy(update={"thought": " ".join(sentences)})


def _significant(text: str) -> frozenset[str]:
    return frozenset(word for word in words_of(text) if len(word) >= _MIN_LENGTH and word[:_STEM] not in _COMMON)
