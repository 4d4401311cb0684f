"""Minimal JSON values for JSON schemas, for requests of unknown roles."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Any, cast

from refinesynth.rehearsal.openai_wire import items, mapping

_DEEPEST = 24
"""Maximum depth of nested schemas."""

_MOST_VALUES = 2_000
"""Maximum number of values for one schema, which may be recursive."""

_LONGEST = 1_000

_MOST_ITEMS = 100

_GREATEST = 2**53
"""Largest number in a schema that is respected."""

_TEXT = "rehearsal"


def instance(schema: object) -> Any:
    """Return a value for this schema. Never raises.

    Honoured are `const`, `default`, `enum`, `$ref`, `allOf`, the first usable part of `anyOf` and `oneOf`, `properties`
    that are `required`, `minItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `exclusiveMinimum` and
    `exclusiveMaximum`. All other keywords are ignored: `pattern`, `format`, `multipleOf`, `prefixItems`, conditions.
    """
    return _Maker(schema).value(schema, 0)


@dataclass
class _Maker:
    root: object
    left: int = _MOST_VALUES

    def value(self, schema: object, depth: int) -> Any:
        self.left -= 1
        given = mapping(schema)
        if depth > _DEEPEST or self.left < 0:
            return None
        if (known := next((key for key in ("const", "default") if key in given), None)) is not None:
            return given[known]
        if choices := items(given.get("enum")):
            return choices[0]
        if "$ref" in given:
            return self.value(_referred(given["$ref"], self.root), depth + 1)
        return self._combined(given, depth) if given.keys() & {"allOf", "anyOf", "oneOf"} else self._plain(given, depth)

    def _combined(self, given: Mapping[str, Any], depth: int) -> Any:
        merged: dict[str, Any] = self._plain(given, depth) if "properties" in given else {}
        every = [self.value(part, depth + 1) for part in items(given.get("allOf"))]
        for value in every:
            merged.update(mapping(value))
        either = (self.value(part, depth + 1) for part in (*items(given.get("anyOf")), *items(given.get("oneOf"))))
        return merged or next((value for value in chain(every, either) if value is not None), None)

    def _plain(self, given: Mapping[str, Any], depth: int) -> Any:
        kind = given.get("type", "object" if "properties" in given else None)
        kinds = [one for one in items(kind) if one != "null"]
        match kinds[0] if kinds else kind:
            case "object":
                named = mapping(given.get("properties"))
                wanted = [name for name in items(given.get("required")) if isinstance(name, str)]
                return {name: self.value(named.get(name), depth + 1) for name in wanted[: max(self.left, 0)]}
            case "array":
                least = int(_number(given.get("minItems"), 0))
                return [self.value(given.get("items"), depth + 1) for _ in range(min(least, _MOST_ITEMS))]
            case "string":
                text = _TEXT.ljust(min(int(_number(given.get("minLength"), 0)), _LONGEST), ".")
                return text[: max(int(_number(given.get("maxLength"), _LONGEST)), 0)]
            case "integer" | "number" as number:
                least = _number(given.get("minimum"), _number(given.get("exclusiveMinimum"), -1) + 1)
                least = ceil(least) if number == "integer" else least
                most = _number(given.get("maximum"), _number(given.get("exclusiveMaximum"), least + 1) - 1)
                return min(least, most)
            case "boolean":
                return True
            case _:
                return None


def _referred(reference: object, root: object) -> object:
    here = root
    for step in reference.split("/")[1:] if isinstance(reference, str) else ():
        here = mapping(here).get(step.replace("~1", "/").replace("~0", "~"))
    return here


def _number(value: object, otherwise: float) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _GREATEST
    return cast("float", value) if fits else otherwise
