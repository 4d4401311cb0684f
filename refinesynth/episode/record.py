"""What an episode leaves behind besides its trajectory: everything that was refused, and how often it was tried."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from refinesynth.backends.session import Session
from refinesynth.outcome import Refused
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Draft, Persona, Script


@dataclass
class Record:
    """Filled while an episode is played."""

    session: Session
    persona: Persona
    refused: list[Refused] = field(default_factory=list[Refused])
    scripts: int = 0
    """Scripts tried so far."""
    drafts: int = 0
    """Drafts tried so far."""

    @property
    def episode(self) -> str:
        """The episode's id."""
        return self.session.id

    def begin_script(self) -> None:
        """Another script is tried."""
        self.scripts += 1
        self.session.attempt += 1

    def begin_draft(self) -> None:
        """Another draft is tried."""
        self.drafts += 1
        self.session.attempt += 1

    def refuse_script(
        self, script: Script | None, violations: Sequence[Violation] = (), *, text: str | None = None
    ) -> None:
        """Keep a script, or what is wrong with an answer that was none."""
        self.refused.append(
            Refused(
                episode=self.episode,
                persona=self.persona,
                stage="script",
                attempt=self.scripts,
                script=script,
                text=text,
                violations=tuple(violations),
            )
        )

    def refuse_draft(self, draft: Draft, violations: Sequence[Violation] = (), *, text: str | None = None) -> None:
        """Keep a draft as far as it came."""
        self.refused.append(
            Refused(
                episode=self.episode,
                persona=self.persona,
                stage="draft",
                attempt=self.drafts,
                draft=draft,
                text=text,
                violations=tuple(violations),
            )
        )
