"""Verified agent trajectories that contain mistakes and their repair, synthesized from personas by any LLM.

    import refinesynth as rs

    result = await rs.synthesize("personas.jsonl", n=100, backend="gpt-4o")

The imports below state the module of each name. A name is imported on first use, which keeps `import refinesynth` fast.
"""

import os
from typing import TYPE_CHECKING

from refinesynth._version import __version__
from refinesynth.lazy_imports import lazy_names

# Pydantic's links add nothing to its error messages. Pydantic reads the variable when it formats the first error.
os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")

if TYPE_CHECKING:
    from refinesynth import backends, chat, client, export, imports, personas, rules, testing, train
    from refinesynth.backends import Backend
    from refinesynth.client.budget.budget import Budget
    from refinesynth.errors import (
        BackendError,
        BudgetSpent,
        ConfigurationError,
        EpisodeAbandoned,
        InputError,
        RefinesynthError,
        RunFolderError,
        RunStopped,
        StorageError,
        TrainingError,
    )
    from refinesynth.evaluate import EvaluationResult, compare, evaluate
    from refinesynth.outcome import Cost, Refused
    from refinesynth.run.merging import Merged, merge
    from refinesynth.settings import Attempts, Curation, Grounding, Mistakes, Mix
    from refinesynth.settings.setting_presets import paper, small
    from refinesynth.synthesis import Estimate, Progress, SynthesisResult, estimate, synthesize
    from refinesynth.trajectory import (
        ActionSpec,
        Draft,
        DungeonMasterTurn,
        MistakeKind,
        Persona,
        PlayerTurn,
        Script,
        Trajectory,
        Usage,
    )

__all__ = [
    "ActionSpec",
    "Attempts",
    "Backend",
    "BackendError",
    "Budget",
    "BudgetSpent",
    "ConfigurationError",
    "Cost",
    "Curation",
    "Draft",
    "DungeonMasterTurn",
    "EpisodeAbandoned",
    "Estimate",
    "EvaluationResult",
    "Grounding",
    "InputError",
    "Merged",
    "MistakeKind",
    "Mistakes",
    "Mix",
    "Persona",
    "PlayerTurn",
    "Progress",
    "RefinesynthError",
    "Refused",
    "RunFolderError",
    "RunStopped",
    "Script",
    "StorageError",
    "SynthesisResult",
    "TrainingError",
    "Trajectory",
    "Usage",
    "__version__",
    "backends",
    "chat",
    "client",
    "compare",
    "estimate",
    "evaluate",
    "export",
    "imports",
    "merge",
    "paper",
    "personas",
    "rules",
    "small",
    "synthesize",
    "testing",
    "train",
]


__getattr__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
