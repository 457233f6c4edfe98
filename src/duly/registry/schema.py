"""Check plain JSON values by a JSON Schema, for submitters that do not import the task's code.

Understood is what `ArgumentCodec.schema()` emits: type, properties, required,
additionalProperties, propertyNames, items, prefixItems, anyOf, enum, const, $ref into $defs,
discriminator, format (date-time, date, time, duration, uuid, decimal), contentEncoding
(base64), pattern, and the bounds of numbers, texts, arrays and objects. Any other keyword or
format is ignored: the worker that decodes the arguments has the last word.

It judges as msgspec does in strict mode, which is stricter than JSON Schema in one point: 1.0
is no integer. An array for a set may repeat an item.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from duly.errors import InvalidArguments
from duly.registry.strict_json import render_path

_TYPES: dict[str, tuple[type, ...]] = {
    "null": (NoneType,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list, tuple),
    "object": (dict,),
}
_TYPE_NAMES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
_KINDS = {NoneType: "null", list: "array", tuple: "array", dict: "object"}
_FORMATS: dict[str, tuple[type, str]] = {
    "date-time": (datetime, "2026-01-31T09:00:00Z"),
    "date": (date, "2026-01-31"),
    "time": (time, "09:00:00"),
    "partial-time": (time, "09:00:00"),
    "duration": (timedelta, "PT1H30M"),
    "uuid": (UUID, "0194b8a6-5d1c-7e43-9f0a-3c2d1b4e5f60"),
    "decimal": (Decimal, "12.50"),
}
_NAIVE = (
    "a datetime without a time zone: make it with datetime.now(UTC), or say which zone is meant "
    "with .replace(tzinfo=...); as text it ends in an offset, such as 2026-01-31T09:00:00Z"
)
_BOUNDS: list[tuple[str, Callable[[Any, Any], bool], str]] = [
    ("minimum", lambda value, bound: value >= bound, "at least"),
    ("exclusiveMinimum", lambda value, bound: value > bound, "more than"),
    ("maximum", lambda value, bound: value <= bound, "at most"),
    ("exclusiveMaximum", lambda value, bound: value < bound, "less than"),
    ("multipleOf", lambda value, bound: math.fmod(value, bound) == 0, "a multiple of"),
]

Schema = Mapping[str, Any] | bool


class _Mismatch(Exception):
    """Why a value does not fit; each level adds its step while the exception passes it."""

    def __init__(self, problem: str, *steps: str | int, other_type: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps = list(steps)
        self.other_type = other_type


def validate(value: object, schema: Mapping[str, Any], task_name: str) -> None:
    """Refuse with InvalidArguments a JSON value that does not fit the schema of `task_name`.

    `value` is the object of the arguments by name. The error names the argument and, inside
    it, the path of what does not fit.
    """
    found = mismatch(value, schema)
    if found is not None:
        steps, problem = found
        inside = f"{render_path(steps)}: " if len(steps) > 1 else ""
        argument = str(steps[0]) if steps else None
        raise InvalidArguments(task_name, f"{inside}{problem}", argument)


def mismatch(value: object, schema: Mapping[str, Any]) -> tuple[list[str | int], str] | None:
    """The way to the first part of a value that does not fit, and why; None if all fits."""
    try:
        _check(value, schema, schema.get("$defs", {}))
    except _Mismatch as found:
        return found.steps[::-1], found.problem
    return None


def _check(value: Any, schema: Schema, definitions: Mapping[str, Any]) -> None:
    if isinstance(schema, bool):
        if not schema:
            raise _Mismatch("nothing is allowed here")
        return
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        _check(value, definitions.get(name, True), definitions)
    _check_type(value, schema)
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        raise _Mismatch(f"expected {_expected(schema, definitions)}")
    if "const" in schema and not _same(value, schema["const"]):
        raise _Mismatch(f"expected {schema['const']!r}")
    if "anyOf" in schema:
        _check_any(value, schema, definitions)
    if isinstance(value, str):
        _check_text(value, schema)
    elif isinstance(value, dict):
        _check_object(value, schema, definitions)
    elif isinstance(value, list | tuple):
        _check_array(value, schema, definitions)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for keyword, holds, words in _BOUNDS:
            if keyword in schema and not holds(value, schema[keyword]):
                raise _Mismatch(f"expected {words} {schema[keyword]}")


def _check_type(value: object, schema: Mapping[str, Any]) -> None:
    names = schema.get("type", ())
    names = [names] if isinstance(names, str) else names
    if names and not any(type(value) in _TYPES.get(name, (type(value),)) for name in names):
        raise _Mismatch(
            f"expected `{_expected(schema, {})}`, got `{_kind(value)}`", other_type=True
        )


def _check_any(value: object, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> None:
    discriminator = schema.get("discriminator", {})
    tag_name = discriminator.get("propertyName")
    if "mapping" in discriminator and isinstance(value, dict) and tag_name in value:
        tag = value[tag_name]
        references = {key: {"$ref": name} for key, name in discriminator["mapping"].items()}
        if not isinstance(tag, str | int) or tag not in references:
            known = ", ".join(repr(key) for key in references)
            raise _Mismatch(f"expected one of {known}", tag_name)
        _check(value, references[tag], definitions)
        return
    closest: _Mismatch | None = None
    for option in schema["anyOf"]:
        try:
            _check(value, option, definitions)
        except _Mismatch as mismatch:
            if not mismatch.other_type or mismatch.steps:
                closest = closest or mismatch
        else:
            return
    if closest is not None:
        raise closest
    raise _Mismatch(
        f"expected `{_expected(schema, definitions)}`, got `{_kind(value)}`", other_type=True
    )


def _check_object(
    value: dict[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> None:
    _check_length(value, schema, "Properties", "fields")
    for name in schema.get("required", ()):
        if name not in value:
            raise _Mismatch("it is required, and missing", name)
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    names = schema.get("propertyNames", True)
    for name, item in value.items():
        try:
            if name not in properties and others is False:
                known = ", ".join(properties) or "none"
                raise _Mismatch(f"it is not expected here; known are: {known}")
            _check(name, names, definitions)
            _check(item, properties.get(name, others), definitions)
        except _Mismatch as mismatch:
            mismatch.steps.append(name)
            raise


def _check_array(
    value: list[Any] | tuple[Any, ...], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> None:
    _check_length(value, schema, "Items", "items")
    first = schema.get("prefixItems", ())
    rest = schema.get("items", True)
    for index, item in enumerate(value):
        try:
            _check(item, first[index] if index < len(first) else rest, definitions)
        except _Mismatch as mismatch:
            mismatch.steps.append(index)
            raise


def _check_text(value: str, schema: Mapping[str, Any]) -> None:
    _check_length(value, schema, "Length", "characters")
    pattern = _compiled(schema["pattern"]) if "pattern" in schema else None
    if pattern is not None and not pattern.search(value):
        raise _Mismatch(f"expected text that matches the pattern {schema['pattern']!r}")
    if schema.get("contentEncoding") == "base64" and not _converts(value, bytes):
        raise _Mismatch("expected bytes as base64 text, such as 'aGVsbG8='")
    if schema.get("format") in _FORMATS:
        kind, example = _FORMATS[schema["format"]]
        if not _converts(value, kind):
            raise _Mismatch(f"expected a {kind.__name__} as text, such as {example!r}")
        if kind is datetime and msgspec.convert(value, datetime).tzinfo is None:
            raise _Mismatch(_NAIVE)


def _check_length(value: Any, schema: Mapping[str, Any], suffix: str, words: str) -> None:
    shortest, longest = schema.get(f"min{suffix}", 0), schema.get(f"max{suffix}", math.inf)
    if not shortest <= len(value) <= longest:
        bounds = f"at least {shortest}" if len(value) < shortest else f"at most {longest}"
        raise _Mismatch(f"expected {bounds} {words}, got {len(value)}")


def _expected(schema: Schema, definitions: Mapping[str, Any]) -> str:
    """What a schema asks for, in a few words."""
    if isinstance(schema, bool):
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return str(definitions.get(name, {}).get("title", name))
    if "enum" in schema:
        return "one of " + ", ".join(repr(option) for option in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_expected(option, definitions) for option in schema["anyOf"])
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]][0].__name__
    names = schema.get("type", "anything")
    names = [names] if isinstance(names, str) else names
    return " | ".join(_TYPE_NAMES.get(name, name) for name in names)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _same(value: object, option: object) -> bool:
    return type(value) is type(option) and value == option


def _converts(text: str, kind: type) -> bool:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern, or None for one in a dialect that Python does not read."""
    try:
        return re.compile(pattern)
    except re.error:
        return None
