"""What a journal says about a run as a whole."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Committed:
    """How far the run's files count."""

    count: int
    """Episodes whose records are in the files: those with an index below this."""
    trajectories_end: int
    """Bytes of trajectories.jsonl that count."""
    rejected_end: int
    """Bytes of rejected.jsonl that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """What one role has used of one model."""

    role: str
    model: str
    requests: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float
    """US dollars, of the requests whose price is known."""
    unpriced: int
    """Requests whose price is unknown."""

    def __add__(self, other: "SpentRow") -> "SpentRow":
        """The same role and model in two journals."""
        return replace(
            self,
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """An episode that has begun and not ended: in flight while the run goes on, to be continued afterwards."""

    index: int
    episode: str
    requests: int
    """Completions that were paid for."""
    attempt: int
    """Of the last completion: scripts and drafts begun."""
    role: str
    """Of the last completion."""
    step: int
    """Of the last completion."""

    def __add__(self, other: "Outstanding") -> "Outstanding":
        """The same episode in two journals."""
        last = max(self, other, key=lambda one: (one.attempt, one.step))
        return replace(last, requests=self.requests + other.requests)
