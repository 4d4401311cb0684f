"""What a training ran on, so that it can be repeated: versions and devices, and nothing that names a person or a machine."""

import platform
from importlib import metadata
from typing import Final

from refinesynth._version import __version__
from refinesynth.train.plan import Devices

_PACKAGES: Final = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "deepspeed",
    "tokenizers",
    "safetensors",
    "datasets",
    "numpy",
    "liger-kernel",
    "flash-attn",
)


def versions(devices: Devices) -> dict[str, str | int]:
    """Packages by name, Python, operating system and device; what is not installed is left out."""
    found: dict[str, str | int] = {"refinesynth": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        **found,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": devices.name,
        "ranks": devices.ranks,
    }
