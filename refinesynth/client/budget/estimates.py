"""What a request to one backend will probably take, and what it may take at worst, by what earlier ones took."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic_ai.usage import RequestUsage

from refinesynth.client.budget.budget import Average

_FRAME = 200
"""Tokens that every prompt has beside its text: the chat's own marks, a schema."""
_UNSEEN_ANSWER = 1_000
"""Tokens of the answer that is expected before there was one."""
UNBOUNDED_ANSWER = 8_192
"""Worst case of an answer without `max_tokens`, at least."""
_UNSEEN_PROMPT = 2.0
"""How many times as long as estimated a prompt may be, before one was counted by its server."""
_LONGER = 1.25
"""How much longer than the longest so far the next one may be."""


class Forecast(NamedTuple):
    """Tokens of one request."""

    worst_prompt: float
    worst_answer: float
    prompt: float
    cached: float
    answer: float


@dataclass(slots=True)
class Estimates:
    """Averages of one backend's requests. Prompts are given as a rough guess, and learned is how far off it is."""

    answers: Average = field(default_factory=Average)
    prompts: Average = field(default_factory=Average)
    """Tokens that were billed for each that was guessed."""
    cached: Average = field(default_factory=Average)
    """Share of a prompt that came from the provider's cache."""
    longest_answer: float = 0.0
    longest_prompt: float = 0.0

    def forecast(self, prompt_tokens: float, max_tokens: int | None) -> Forecast:
        """For a prompt of about so many tokens: the probable answer is an average one and the spread on top."""
        guess = prompt_tokens + _FRAME
        if not self.answers.count:
            most = max_tokens or UNBOUNDED_ANSWER
            return Forecast(_UNSEEN_PROMPT * guess, most, guess, 0.0, min(_UNSEEN_ANSWER, most))
        most = max_tokens or max(UNBOUNDED_ANSWER, 2 * self.longest_answer)
        prompt = guess * self.prompts.mean
        return Forecast(
            worst_prompt=guess * max(1.0, self.longest_prompt) * _LONGER,
            worst_answer=most,
            prompt=prompt,
            cached=prompt * self.cached.mean,
            answer=min(most, self.answers.mean + self.answers.deviation),
        )

    def learn(self, prompt_tokens: float, usage: RequestUsage) -> None:
        """One more request was answered."""
        ratio = usage.input_tokens / (prompt_tokens + _FRAME)
        self.prompts.add(ratio)
        self.longest_prompt = max(self.longest_prompt, ratio)
        self.answers.add(usage.output_tokens)
        self.longest_answer = max(self.longest_answer, usage.output_tokens)
        self.cached.add(usage.cache_read_tokens / (usage.input_tokens or 1))
