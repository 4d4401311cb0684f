"""Values of the package: persona, script, turns, draft, trajectory.

All are frozen pydantic models that forbid unknown fields. Text from an LLM is read by `Script.from_llm`, `read_turns`
and `Draft.from_text`, which are tolerant. The paper's spellings (`Thought`, `verification code`, `Available Actions`,
...; sections 3.1 and 3.2 of arXiv 2501.01702) are accepted everywhere as aliases.
"""

from refinesynth.trajectory.draft import Answer, Draft, Liberty, read_answer
from refinesynth.trajectory.parameter import ParameterType
from refinesynth.trajectory.rulebook import (
    ConditionalText,
    Effect,
    EffectOp,
    Invariant,
    Knowledge,
    Requirement,
    Rulebook,
    Sight,
)
from refinesynth.trajectory.script import ActionSpec, Persona, Script, ScriptedPersona
from refinesynth.trajectory.trajectory import (
    PLAY_NAME,
    SCHEMA_VERSION,
    Branch,
    Difficulty,
    PlayName,
    Provenance,
    Refinements,
    Trajectory,
    Usage,
)
from refinesynth.trajectory.turns import (
    EXECUTED,
    MAX_RAW_CHARACTERS,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    MistakeKind,
    PlayerTurn,
    Turn,
    explain,
    flagged_turns,
    known_exchanges,
    read_turn,
    read_turns,
)
from refinesynth.trajectory.value import Value

__all__ = [
    "EXECUTED",
    "MAX_RAW_CHARACTERS",
    "PLAY_NAME",
    "SCHEMA_VERSION",
    "ActionSpec",
    "Answer",
    "Branch",
    "ConditionalText",
    "Difficulty",
    "Draft",
    "DraftTurn",
    "DungeonMasterTurn",
    "Effect",
    "EffectOp",
    "Invariant",
    "Knowledge",
    "Liberty",
    "MalformedTurn",
    "MistakeKind",
    "ParameterType",
    "Persona",
    "PlayName",
    "PlayerTurn",
    "Provenance",
    "Refinements",
    "Requirement",
    "Rulebook",
    "Script",
    "ScriptedPersona",
    "Sight",
    "Trajectory",
    "Turn",
    "Usage",
    "Value",
    "explain",
    "flagged_turns",
    "known_exchanges",
    "read_answer",
    "read_turn",
    "read_turns",
]
