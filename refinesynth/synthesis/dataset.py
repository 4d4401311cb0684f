"""A run's trajectories as a Hugging Face dataset."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinesynth.chat import to_messages
from refinesynth.extras import require
from refinesynth.run import RunFolder

if TYPE_CHECKING:
    from datasets import Dataset


def to_dataset(folder: RunFolder) -> "Dataset":
    """See `SynthesisResult.to_dataset`."""
    # Typed as Any: datasets is optional, and its types are partial.
    datasets: Any = require("datasets", "datasets")
    text: Any = datasets.Value("string")
    features = datasets.Features(
        {
            "id": text,
            "persona": text,
            "messages": datasets.List({"role": text, "content": text, "loss": datasets.Value("bool")}),
            "mistakes": datasets.List(datasets.Value("int32")),
            "trajectory": text,
        }
    )
    if next(folder.trajectories(), None) is None:
        # from_generator refuses a generator that gives nothing.
        return datasets.Dataset.from_dict({name: [] for name in features}, features=features)
    state = folder.trajectories_file.stat()
    # The size and time are among the arguments because datasets caches by them: a run that has grown is read again.
    arguments = {"path": str(folder.path.resolve()), "size": state.st_size, "changed": state.st_mtime_ns}
    return datasets.Dataset.from_generator(_rows, features=features, gen_kwargs=arguments)


def _rows(path: str, size: int, changed: int) -> Iterator[dict[str, Any]]:
    del size, changed
    for trajectory in RunFolder.open(Path(path)).trajectories():
        yield {
            "id": trajectory.id,
            "persona": trajectory.persona.text,
            "messages": [message._asdict() for message in to_messages(trajectory)],
            "mistakes": list(trajectory.mistakes()),
            "trajectory": trajectory.to_json().decode(),
        }
