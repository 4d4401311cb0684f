"""Checks of names on the Hugging Face Hub, with one short request each.

By themselves, the libraries ask an unreachable hub for over half a minute, again for every file.
"""

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from refinesynth.errors import InputError
from refinesynth.extras import require
from refinesynth.files.gguf import is_gguf

_NOT_HERE: Final = {"model": "no folder", "dataset": "no file or folder"}
_TIMEOUT: Final = 10.0
"""Seconds for the hub to answer."""
HUB: Final = "hf://"
"""Optional prefix of a model name on the hub."""
_NAME: Final = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def bare(model: str) -> str:
    """The hub name without `HUB`."""
    return model.removeprefix(HUB)


def check_model_name(model: str) -> None:
    """Refuse a mistyped folder name before a hub is asked for it. Raises `InputError`."""
    owner, slash, last = bare(model).rpartition("/")
    if _NAME.fullmatch(bare(model)) is None:
        raise InputError(
            f"there is no folder {model!r}, and the Hugging Face Hub has no such names; give a folder with config.json and safetensors, or "
            "OWNER/NAME"
        )
    beside = Path(owner or ".")
    if model.startswith(HUB) or not beside.is_dir():
        return
    folders = [path.name for path in beside.iterdir() if path.is_dir()]
    near = difflib.get_close_matches(last, folders, n=1, cutoff=0.75)
    if slash or near:
        meant = f"; did you mean {str(beside / near[0])!r}?" if near else "."
        raise InputError(
            f"there is no folder {model!r}{meant} One of this name on the Hugging Face Hub is {HUB}{model}"
        )


def located(name: str, revision: str | None = None) -> dict[str, Any]:
    """Arguments of `from_pretrained` (of a GGUF file, for its tokenizer alone), also without a hub. Raises `InputError`."""
    if is_gguf(name):
        path = Path(name)
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    is_here = Path(name).is_dir() or not find_on_hub(bare(name), "model", revision)
    named = {} if revision is None else {"revision": revision}
    return {"pretrained_model_name_or_path": bare(name), "local_files_only": is_here, **named}


@cache
def find_on_hub(name: str, kind: Literal["model", "dataset"], revision: str | None = None) -> bool:
    """Ask the hub for `name`; False if it is unreachable and its cache here has the name. Raises `InputError`."""
    require("huggingface_hub", "train")
    import huggingface_hub as hub
    from huggingface_hub import constants, errors, file_download

    try:
        hub.HfApi().repo_info(name, repo_type=kind, revision=revision, timeout=_TIMEOUT)
    except errors.GatedRepoError:
        return True  # Its files may be here already; loading them reports what is missing.
    except (errors.HFValidationError, errors.RevisionNotFoundError, errors.RepositoryNotFoundError) as error:
        at = "" if revision is None else f" at {revision!r}"
        raise InputError(
            f"there is {_NOT_HERE[kind]} {name!r}, and no {kind} of this name{at} on the Hugging Face Hub ({constants.ENDPOINT}): {error}"
        ) from error
    except errors.HfHubHTTPError:
        return True
    except Exception as error:  # The client raises many kinds, for everything on the way to the hub.
        cached = Path(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=name, repo_type=kind))
        if cached.is_dir():
            return False
        raise InputError(
            f"there is {_NOT_HERE[kind]} {name!r}, and the Hugging Face Hub ({constants.ENDPOINT}) cannot be reached "
            f"({type(error).__name__}: {error}); nothing of this name was fetched before"
        ) from error
    return True
