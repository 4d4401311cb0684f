"""How often an episode may try again before it is given up."""

from pydantic import BaseModel, Field


class Attempts(BaseModel, frozen=True, extra="forbid"):
    """Bounds on what one episode may spend."""

    scripts: int = Field(default=3, ge=1)
    """Scripts that may be written until one passes the script rules."""
    drafts: int = Field(default=4, ge=1)
    """Drafts that may be verified: in live play, plays that end or are cut back at a violation; in narrated play,
    answers of the Narrator."""
    calls: int | None = Field(default=None, ge=1)
    """Completions in all, the script's and every retried answer included, the judge's not; None sets no bound. The
    paper allows four. Where a script is played more than once, each further play may have as many again."""
    answers: int = Field(default=2, ge=0)
    """How often one answer of invalid form goes back to the model with what is wrong, before its attempt is refused."""
