"""What all episodes of a run have in common, ready to be played: its settings with rules and prompts found."""

from typing import Annotated

from pydantic import SkipValidation

from refinesynth.prompts import Prompts
from refinesynth.rules.rule import Rule
from refinesynth.settings import PlaySettings


class EpisodeSettings(PlaySettings):
    """How an episode is played and what is accepted.

    Raises:
        pydantic.ValidationError: A setting is out of its range.
    """

    rules: Annotated[Rule, SkipValidation]
    """What a draft must satisfy."""
    script_rules: Annotated[Rule, SkipValidation]
    """What a script must satisfy; seen as a draft without turns."""
    prompts: Annotated[Prompts, SkipValidation]
    """What the roles are asked with."""
    scripted: bool = False
    """Whether personas come with their scripts, so that no ScriptWriter is asked."""
