"""Pushes a finished training's model to the Hugging Face Hub, where its user asks for that by `trainer.push_to_hub`."""

from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from refinesynth.errors import ConfigurationError, InputError, TrainingError
from refinesynth.extras import require
from refinesynth.train.config import TrainConfig
from refinesynth.train.folder import CHECKPOINTS, TENSORBOARD

_PUSHED: Final = (
    "*.safetensors",
    "*.json",
    "*.jsonl",
    "*.jinja",
    "*.py",
    "*.model",
    "*.txt",
    "README.md",
    "train.yaml",
    "plots/*.png",
)
"""What a training writes, by its kind, since tokenizers call their files as they like. Files of these kinds that a user
puts beside them go with them."""


class Pushing:
    """The model's place on the hub: made before the first step, filled when the model is whole and has its card."""

    def __init__(self, config: TrainConfig) -> None:
        given = config.trainer
        asked = given.get("push_to_hub") or False
        try:
            self.is_asked = TypeAdapter(bool).validate_python(asked)
        except ValidationError:
            raise ConfigurationError(f"trainer.push_to_hub is {asked!r}; expected true or false") from None
        self._folder = Path(config.output)
        self._name: str = given.get("hub_model_id") or self._folder.absolute().name
        self._private: bool | None = given.get("hub_private_repo")
        self._revision: str | None = given.get("hub_revision")

    def prepare(self) -> None:
        """Make the repository and its branch, if they are not there.

        Raises:
            InputError: The hub refuses, or cannot be reached.
        """
        if not self.is_asked:
            return
        try:
            self._name = _hub().create_repo(self._name, private=self._private, exist_ok=True).repo_id
            if self._revision is not None:
                _hub().create_branch(self._name, branch=self._revision, exist_ok=True)
        except Exception as error:  # The client raises many kinds, for everything on the way to the hub.
            raise InputError(
                f"the model cannot be pushed to {self._name!r} on the Hugging Face Hub: {error}. Log in with `hf auth login`, or leave "
                "trainer.push_to_hub out"
            ) from error

    def push(self) -> None:
        """Upload the model, its card and what a training writes beside them, without checkpoints.

        Raises:
            TrainingError: It could not be; the model is whole where it is.
        """
        if not self.is_asked:
            return
        try:
            self.prepare()
            _hub().upload_folder(
                repo_id=self._name,
                folder_path=self._folder,
                commit_message="Model of a finished training",
                revision=self._revision,
                allow_patterns=list(_PUSHED),
                ignore_patterns=[f"{CHECKPOINTS}/*", f"{TENSORBOARD}/*", ".*"],
            )
        except Exception as error:  # As above.
            raise TrainingError(
                f"the model lies whole in {str(self._folder)!r}, but pushing it failed: {error}. The same command pushes it again"
            ) from error


def _hub() -> Any:
    require("huggingface_hub", "train")
    import huggingface_hub

    return huggingface_hub.HfApi()
