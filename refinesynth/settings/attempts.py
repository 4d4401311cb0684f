"""Limits of an episode's tries."""

from typing import Any

from pydantic import BaseModel, Field, model_validator


class Attempts(BaseModel, frozen=True, extra="forbid"):
    """Bounds on what one episode may spend."""

    scripts: int = Field(default=3, ge=1)
    """Scripts written until one passes the script rules."""
    drafts: int = Field(default=4, ge=1)
    """Drafts that may be verified: in live play, plays that end or are cut back at a violation; in narrated play,
    answers of the Narrator."""
    calls: int | None = Field(default=None, ge=1)
    """Completions in all, the script's and every retried answer included, the judge's not; None sets no bound. The
    paper allows four. Where a script is played more than once, each further play may have as many again."""
    answers: int = Field(default=2, ge=0)
    """Times that an answer of invalid form goes back to the model with its errors, before its attempt is refused."""

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        """Parse `drafts=4,scripts=3,calls=8,answers=2`, any of them; a bare number is `drafts`."""
        if not isinstance(given, str):
            return given
        parts = [part.partition("=") for part in given.split(",")]
        values = {name.strip() if sign else "drafts": number if sign else name for name, sign, number in parts}
        if unknown := values.keys() - cls.model_fields.keys() or {
            name for name, number in values.items() if not number.strip().isdecimal()
        }:
            raise ValueError(
                f"{', '.join(sorted(unknown))}: expected numbers by name, such as scripts=3,drafts=4,calls=8,answers=2"
            )
        return values
