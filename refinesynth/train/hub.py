"""The Hugging Face Hub, asked once and not for long whether it has what a name that is no folder stands for.

Left to themselves, the libraries ask a hub that cannot be reached for half a minute and more, again for every file.
"""

from functools import cache
from pathlib import Path
from typing import Final, Literal

from refinesynth.errors import InputError
from refinesynth.train.extra import require

_NOT_HERE: Final = {"model": "no folder", "dataset": "no file or folder"}
_PATIENCE: Final = 10.0
"""Seconds for the hub to answer."""


@cache
def seek(name: str, kind: Literal["model", "dataset"]) -> bool:
    """Whether the hub answers for `name`; False where it cannot be reached and there is something of that name in its cache here.

    Raises:
        InputError: There is none, or the hub cannot be reached and nothing was fetched from it before.
    """
    require("huggingface_hub")
    import huggingface_hub as hub
    from huggingface_hub import constants, errors, file_download

    try:
        hub.HfApi().repo_info(name, repo_type=kind, timeout=_PATIENCE)
    except errors.HFValidationError as error:
        raise InputError(f"there is {_NOT_HERE[kind]} {name!r}, and the Hugging Face Hub has no such names") from error
    except errors.GatedRepoError:
        return True  # Its files may be had here already; whoever loads them says what is missing.
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"there is {_NOT_HERE[kind]} {name!r}, and no {kind} of this name on the Hugging Face Hub ({constants.ENDPOINT}); "
            "one that is private needs `hf auth login`"
        ) from error
    except errors.HfHubHTTPError:
        return True
    except Exception as error:  # Of whatever lies between here and there, the client raises many kinds.
        cached = Path(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=name, repo_type=kind))
        if cached.is_dir():
            return False
        raise InputError(
            f"there is {_NOT_HERE[kind]} {name!r}, and whether the Hugging Face Hub has a {kind} of this name cannot be asked: "
            f"{constants.ENDPOINT} cannot be reached ({type(error).__name__}: {error}), and nothing of it was fetched before"
        ) from error
    return True


def is_only_here(model: str) -> bool:
    """Whether a model's files can come from this machine alone: it is a folder, or the hub cannot be reached.

    Raises:
        InputError: As `seek`.
    """
    return Path(model).is_dir() or not seek(model, "model")
