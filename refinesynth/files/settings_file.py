"""Settings files in YAML, which includes JSON."""

import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import BaseModel

from refinesynth.errors import InputError

_compose: Any = yaml.compose  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - it has no types
_MAX_BYTES: Final = 1_000_000
_COMMENT_COLUMN: Final = 40


def read_settings(path: Path, *, nested: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    """Read a YAML file with a mapping. Repeated keys are refused, also within the settings for which `nested` is true.

    Raises:
        InputError: The file is missing, is not such YAML, or is too large for a configuration.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{str(path)!r} is larger than a configuration can be ({_MAX_BYTES:,} bytes)")
        document: object = yaml.safe_load(content := path.read_bytes())
        _refuse_repeated(_compose(content, yaml.SafeLoader), path, nested)
    except OSError as error:
        raise InputError(f"the configuration {str(path)!r} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{str(path)!r} is no YAML: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InputError(f"{str(path)!r} holds no settings: lines like `seed: 7` were expected")
    return {str(name): value for name, value in cast("dict[object, Any]", document).items()}


def _refuse_repeated(node: Any, path: Path, nested: Callable[[str], bool]) -> None:
    """Refuse a repeated setting; YAML would silently take the last value."""
    if node is None or node.id != "mapping":
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in seen:
            lines = f"lines {seen[name]} and {line}" if seen[name] != line else f"line {line}"
            raise InputError(f"{str(path)!r} gives {reprlib.repr(name)} twice, in {lines}; leave one of them")
        seen[name] = line
        if nested(name):
            _refuse_repeated(value, path, lambda _: False)


def commented_yaml(
    model: type[BaseModel],
    values: Mapping[str, Any],
    *,
    origin: Callable[[str], str],
    nested_type: Callable[[str], type | None] = lambda _: None,
) -> str:
    """Return a settings file for `read_settings`, with the docstring of each setting and the origin of its value.

    `values` are JSON values in the model's order; `nested_type` returns the model of a setting with nested settings.
    """
    lines: list[str] = []
    for name, value in values.items():
        lines += _comment_lines(model, name)
        nested = nested_type(name)
        if nested is not None and value:
            lines.append(f"{name}:")
            for inner, item in value.items():
                lines += _comment_lines(nested, inner, indent="  ")
                lines.append(_line(f"  {_setting(inner, item)}", origin(f"{name}.{inner}")))
        else:
            lines.append(_line(_setting(name, value), origin(name)))
        lines.append("")
    return "\n".join(lines)


def dump_yaml(value: object, *, flow: bool = False) -> str:
    """Return YAML without a final line feed, with invisible characters escaped."""
    text = ""
    for unicode in (True, False):
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=unicode, width=10**9, default_flow_style=flow)
        if text.replace("\n", "").isprintable():
            break
    return text.rstrip("\n")


def _comment_lines(model: type, name: str, *, indent: str = "") -> Iterator[str]:
    field = getattr(model, "model_fields", {}).get(name)
    yield from (f"{indent}# {line}" for line in ((field and field.description) or "").splitlines())


def _line(setting: str, origin: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN}}  # {' '.join(origin.split())}"


def _setting(name: str, value: object) -> str:
    """Return `name: value` on one line."""
    return f"{name}: {dump_yaml(value, flow=True).removesuffix('...').rstrip()}"
