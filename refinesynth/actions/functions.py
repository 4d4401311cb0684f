"""A user's functions as actions: definitions in the forms of OpenAI, Anthropic and MCP, read and validated.

The text of such an action is the function's name with its arguments: `get_weather city={city} unit={unit}`. Definitions
are untrusted.
"""

import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from typing import Any, cast

from refinesynth.actions.calls import tools_of
from refinesynth.actions.patterns import pattern_of
from refinesynth.text.formatting import listed, quoted
from refinesynth.text.json_reader import depth, write_json
from refinesynth.trajectory import ActionSpec, ParameterType, Script

MAX_BYTES = 20_000
"""Longest definition of a function, in bytes of JSON."""
_DEPTH = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT = re.compile(r"[^\s{}=]{1,64}")
_RESERVED = frozenset({"state", "visible", "each", "before", *keyword.kwlist})
"""Argument names that conditions of a rulebook cannot read."""
_KINDS = ("string", "integer", "number", "boolean", "array", "object")
_TYPES: Mapping[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_MAX_ALTERNATIVES = 64
_MAX_SCHEMAS = 1_000
_MAX_PROBLEMS = 5
_MAX_SPLITS = 16
"""Maximum number of positions at which a function's description is split."""


def actions_of(source: object, allowed: Collection[str] = ()) -> tuple[ActionSpec, ...]:
    """Read the functions of a list, or of an object's list `tools`, as actions sorted by name; only the `allowed` ones,
    if given.

    Raises:
        ValueError: The value is no such list, the list is empty, or a function is missing or unusable. The message
            names up to five unusable ones, each with the reason.
    """
    tools = _object(cast("object", source)).get("tools") if isinstance(source, Mapping) else source
    if isinstance(tools, list | tuple) and not tools:
        raise ValueError("the list of functions is empty; give at least one")
    if not isinstance(tools, list | tuple):
        raise ValueError("expected a list of functions, or an object with the list `tools`, in OpenAI's or MCP's form")
    functions = [_object(_object(tool).get("function", tool)) for tool in cast("list[object]", tools)]
    names = [str(function.get("name") or "") for function in functions]
    if missing := sorted({*allowed} - {*names}):
        raise ValueError(f"there is no tool {listed(missing)}; there are {listed(sorted(names))}")
    actions: dict[str, ActionSpec] = {}
    problems: list[str] = []
    for name, function in zip(names, functions, strict=True):
        if allowed and name not in allowed:
            continue
        try:
            actions[name] = _action(name, function, duplicate=name in actions)
        except ValueError as error:
            problems.append(f"{quoted(name)}: {error}")
    if problems:
        shown = "; ".join([*problems[:_MAX_PROBLEMS], *(["..."] if len(problems) > _MAX_PROBLEMS else [])])
        raise ValueError(f"these tools cannot be actions: {shown}. Change them, or leave them out by naming the others")
    return tuple(actions[name] for name in sorted(actions))


def action_of(tool: Mapping[str, Any]) -> ActionSpec | None:
    """Read a definition written by `calls.Tool.definition`; a number after the function's name is ignored.

    Another definition is read as a user's function; None if it is unusable.
    """
    function = _object(tool.get("function"))
    text = str(function.get("description") or "")
    properties = _object(_object(function.get("parameters")).get("properties"))
    ends = [match.start() for match in islice(re.finditer(": ", text), _MAX_SPLITS)]
    for name in filter(None, (text[:end] for end in (*ends, len(text)))):
        slots = dict.fromkeys(ActionSpec(name=name, pattern=".").placeholders)
        if len(slots) != len(properties):
            continue
        types = dict(zip(slots, (ParameterType.from_schema(_object(one)) for one in properties.values()), strict=True))
        action = ActionSpec(
            name=name,
            description=text[len(name) + 2 :],
            pattern=pattern_of(name),
            parameters={slot: values for slot, (_, values) in types.items() if values},
            types={slot: kind for slot, (kind, _) in types.items() if kind != ParameterType()},
        )
        (derived,) = tools_of(Script(environment={}, goal="none", completion_conditions=(), actions=(action,)))
        if re.fullmatch(rf"{derived.name}(_\d+)*", str(function.get("name"))):
            return action
    with suppress(ValueError):
        return actions_of([tool])[0]
    return None


def _action(name: str, definition: Mapping[str, Any], *, duplicate: bool) -> ActionSpec:
    schemas = filter(None, map(definition.get, ("parameters", "inputSchema", "input_schema")))
    root, description = dict(_object(next(schemas, {"type": "object"}))), definition.get("description") or ""
    root.setdefault("properties", {})
    if duplicate or _NAME.fullmatch(name) is None:
        raise ValueError("expected a name of its own, of 1 to 64 letters, digits, `_` and `-`")
    if not isinstance(description, str) or (root.get("type"), type(root["properties"])) != ("object", dict):
        raise ValueError("its description is no text, or its parameters are no JSON schema of an object")
    if depth(root) > _DEPTH or len(write_json((root, description), default=str)) > MAX_BYTES:
        raise ValueError(f"its definition is nested deeper than {_DEPTH} levels, or longer than {MAX_BYTES:,} bytes")
    template, pattern, descriptions = name, re.escape(name), [description]
    values: dict[str, tuple[str, ...]] = {}
    types: dict[str, ParameterType] = {}
    required: object = root.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    for argument, described in root["properties"].items():
        if _ARGUMENT.fullmatch(argument) is None:
            raise ValueError(f"the name of its argument {quoted(argument)} is too long, or has spaces, braces or `=`")
        slot = re.sub(r"\W", "_", argument, flags=re.ASCII)
        while slot in values or slot in _RESERVED or not slot.isidentifier():
            slot = f"_{slot}"
        try:
            types[slot], values[slot], text = _argument(_object(described), root, required=argument in needed)
        except ValueError as error:
            raise ValueError(f"its argument {quoted(argument)} {error}") from None
        template += f" {argument}={{{slot}}}"
        pattern += f" {re.escape(argument)}=(.{'*' if types[slot].optional else '+'}?)"
        descriptions += [f"{slot}: {text}"] if text else []
    return ActionSpec(
        name=template,
        description=" ".join(" ".join(descriptions).split()),
        pattern=f"(?s){pattern}",
        parameters=values,
        types={slot: kind for slot, kind in types.items() if kind != ParameterType()},
        function={"name": name, "description": description, "parameters": root},
    )


def _argument(
    schema: Mapping[str, Any], root: Mapping[str, Any], *, required: bool
) -> tuple[ParameterType, tuple[str, ...], object]:
    """Return type, listed values and description; raises ValueError with a message to follow the argument's name."""
    alternatives = list(islice(_alternatives(schema, root, count()), _MAX_ALTERNATIVES))
    non_null = [item for item in alternatives if item["type"] != "null"]
    kinds = sorted({str(item["type"]) for item in non_null})
    if len(kinds) != 1 or kinds[0] not in _KINDS:
        fault = f"is a union of {listed(kinds)}" if len(kinds) > 1 else "has no type"
        raise ValueError(f"{fault}; expected one of {', '.join(_KINDS)}")
    chosen = non_null[0] if len(non_null) == 1 else {"type": kinds[0]}
    description, values = schema.get("description") or chosen.get("description"), chosen.get("enum")
    optional = not required or len(non_null) < len(alternatives) or (isinstance(values, list) and None in values)
    if kinds[0] in {"array", "object"}:
        return ParameterType(type="json", optional=optional), (), description
    if isinstance(values, list):
        chosen = {**chosen, "enum": [value for value in cast("list[object]", values) if value is not None]}
    kind, texts = ParameterType.from_schema(chosen)
    kind = kind.model_copy(update={"optional": optional and not kind.default, "default": kind.default or None})
    if problem := next(iter(kind.problems(texts)), None):
        raise ValueError(f"does not fit its own schema: {problem}")
    return kind, texts, description


def _alternatives(
    schema: Mapping[str, Any], root: Mapping[str, Any], visited: Iterator[int], levels: int = 8
) -> Iterator[dict[str, Any]]:
    """Yield the single-type schemas from a schema's references and unions; the type is None for a schema without one."""
    if next(visited) > _MAX_SCHEMAS:
        raise ValueError(f"leads to more than {_MAX_SCHEMAS:,} schemas")
    union = next((key for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)), "")
    kind, reference, values = schema.get("type"), schema.get("$ref"), schema.get("enum")
    common = {key: value for key, value in schema.items() if key not in {union, "$ref", "const"}}
    if levels and union:
        for alternative in schema[union]:
            yield from _alternatives({**_object(alternative), **common}, root, visited, levels - 1)
    elif levels and isinstance(reference, str):
        target: object = root
        for step in reference.removeprefix("#/").split("/"):
            target = _object(target).get(step)
        yield from _alternatives({**_object(target), **common}, root, visited, levels - 1)
    elif levels and "const" in schema:
        yield from _alternatives({**common, "enum": [schema["const"]]}, root, visited, levels - 1)
    else:
        listed_values = cast("list[object]", values) if isinstance(values, list) else []
        value_types = [_TYPES.get(type(value), "array") for value in listed_values] if kind is None else []
        kinds = cast("list[object]", kind) if isinstance(kind, list) else sorted({*value_types}) or [kind]
        yield from ({**schema, "type": name} for name in kinds)


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
