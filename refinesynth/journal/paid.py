"""One completion that was paid for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """A completion, what it answered, and what it cost."""

    episode: str
    """Id of the episode."""
    index: int
    """The persona's position in the run's source, from 0."""
    attempt: int
    """Scripts and drafts begun so far in the episode."""
    role: str
    step: int
    """How many completions this role of this episode had before."""
    digest: bytes
    """What was asked, 16 bytes."""
    model: str
    """What answered, as its backend calls it."""
    answer: bytes
    """The answer as JSON."""
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float | None
    """US dollars; None where the price is unknown."""
