"""Declared types: can they be stored, and what JSON Schema describes them.

msgspec makes the schema; what it leaves open is completed here, so that a value can be checked
by the schema alone as strictly as by the type: a `datetime` has the format `date-time` (with an
offset: naive ones are refused), a `Decimal` may be a number too, and keys that are not strings
in Python have `propertyNames`. In one point it is stricter than the type, which passes over
fields it does not know when it reads: an object has `additionalProperties` false, so that a
misspelt field is refused when it is submitted.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as mi

from duly.errors import ConfigurationError
from duly.registry import foreign
from duly.registry.structure import type_name

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_INTEGER_KEY = r"^(0|-?[1-9][0-9]*)$"
_NUMBER_KEY = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_KEY_SCHEMAS: dict[type[mi.Type], dict[str, Any]] = {
    mi.IntType: {"pattern": _INTEGER_KEY},
    mi.FloatType: {"pattern": _NUMBER_KEY},
    mi.DateTimeType: {"format": "date-time"},
    mi.DateType: {"format": "date"},
    mi.TimeType: {"format": "time"},
    mi.TimeDeltaType: {"format": "duration"},
    mi.UUIDType: {"format": "uuid"},
    mi.DecimalType: {"format": "decimal"},
    mi.BytesType: {"contentEncoding": "base64"},
}


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The declared types of a function's parameters, and of its result under `return`.

    ConfigurationError names the parameter whose annotation cannot be resolved.
    """
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if not inspect.isroutine(target):
        target = inspect.unwrap(type(target).__call__)
    try:
        return get_type_hints(target, include_extras=True)
    except Exception as error:
        culprit = _unresolved(target) or ("an annotation", error)
        raise ConfigurationError(
            f"{type_name(target)}: {culprit[0]} cannot be resolved: {culprit[1]}. A type that is "
            "defined inside a function or imported under `if TYPE_CHECKING` cannot be found at "
            "run time: define or import it at the top of the module"
        ) from error


def _unresolved(target: Any) -> tuple[str, Exception] | None:
    """The first annotation that fails to resolve on its own, in words, and its failure."""
    for name, annotation in target.__annotations__.items():
        alone = type("alone", (), {"__annotations__": {name: annotation}})
        try:
            get_type_hints(alone, globalns=target.__globals__)
        except Exception as error:
            what = "the result" if name == "return" else f"parameter {name!r}"
            return f"the annotation {annotation!r} of {what}", error
    return None


def stored_type(parameter: inspect.Parameter) -> Any:
    """The type of what is stored under a parameter's name; its annotation is resolved."""
    hint = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    if get_origin(hint) is Unpack:
        return get_args(hint)[0]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return GenericAlias(tuple, (hint, ...))
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return GenericAlias(dict, (str, hint))
    return hint


def unstorable(declared: Any) -> str | None:
    """Why values of a declared type cannot be stored as JSON; None if they can."""
    try:
        info = mi.type_info(declared)
        msgspec.json.Decoder(declared)
    except (TypeError, NameError, AttributeError) as error:
        return str(error)
    for part in _every(info):
        if isinstance(part, mi.CustomType) and not foreign.is_storable(part.cls):
            return f"a {type_name(part.cls)} cannot be stored as JSON"
    return None


def schema(declared: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a Struct, with the types it uses under `$defs`."""
    models: dict[str, Any] = {}

    def custom(kind: type) -> dict[str, Any]:
        if kind is object:
            return {"description": "any JSON value"}
        prefix = re.sub(r"[^a-zA-Z0-9_]", "_", type_name(kind)) + "."
        described = foreign.model_schema(kind, prefix)
        for name, definition in described.pop("$defs", {}).items():
            models[prefix + name] = definition
        return described

    (reference,), definitions = msgspec.json.schema_components([declared], schema_hook=custom)
    _complete(mi.type_info(declared), reference, definitions, set())
    root = definitions.pop(_name(reference))
    definitions.update(models)
    return {"$schema": DIALECT, **root, **({"$defs": definitions} if definitions else {})}


def _name(reference: dict[str, Any]) -> str:
    name: str = reference["$ref"].removeprefix("#/$defs/")
    return name


def _every(root: mi.Type) -> Iterator[mi.Type]:
    """The type and all types it is made of, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        info = waiting.pop()
        if id(info) not in seen:
            seen.add(id(info))
            yield info
            waiting.extend(_direct_parts(info))


def _direct_parts(info: Any) -> list[mi.Type]:
    if isinstance(info, mi.Metadata):
        return [info.type]
    if isinstance(info, mi.UnionType):
        return list(info.types)
    if isinstance(info, mi.CollectionType):
        return [info.item_type]
    if isinstance(info, mi.TupleType):
        return list(info.item_types)
    if hasattr(info, "key_type"):
        return [info.key_type, info.value_type]
    return [field.type for field in getattr(info, "fields", ())]


def _bare(info: mi.Type) -> mi.Type:
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def _complete(
    info: Any, schema: dict[str, Any], definitions: dict[str, Any], done: set[str]
) -> None:
    """Add what msgspec leaves open to the schema it made of `info`, in place."""
    info = _bare(info)
    if isinstance(info, mi.CustomType):
        return
    if "$ref" in schema:
        name = _name(schema)
        if name in done:
            return
        done.add(name)
        schema = definitions[name]
    pairs: list[tuple[mi.Type, dict[str, Any]]] = []
    if isinstance(info, mi.DateTimeType) and info.tz is None:
        schema["format"] = "date-time"
    elif isinstance(info, mi.TimeType) and info.tz is None:
        schema["format"] = "time"
    elif isinstance(info, mi.DecimalType):
        schema["type"] = ["string", "number"]
    elif isinstance(info, mi.CollectionType) and "items" in schema:
        pairs = [(info.item_type, schema["items"])]
    elif isinstance(info, mi.TupleType):
        pairs = list(zip(info.item_types, schema.get("prefixItems", ()), strict=True))
    elif hasattr(info, "key_type"):
        if names := _key_schema(info.key_type):
            schema["propertyNames"] = names
        if "additionalProperties" in schema:
            pairs = [(info.value_type, schema["additionalProperties"])]
    elif isinstance(info, mi.UnionType):
        pairs = _union_pairs(info, schema)
    elif isinstance(info, mi.StructType) and info.array_like:
        tag = 0 if info.tag_field is None else 1
        types = [field.type for field in info.fields]
        pairs = list(zip(types, schema["prefixItems"][tag:], strict=True))
    elif isinstance(info, mi.NamedTupleType):
        types = [field.type for field in info.fields]
        pairs = list(zip(types, schema["prefixItems"], strict=True))
    elif hasattr(info, "fields"):
        schema["additionalProperties"] = False
        pairs = [(field.type, schema["properties"][field.encode_name]) for field in info.fields]
    for part, its_schema in pairs:
        _complete(part, its_schema, definitions, done)


def _union_pairs(
    info: mi.UnionType, schema: dict[str, Any]
) -> list[tuple[mi.Type, dict[str, Any]]]:
    """The members of a union with their schemas.

    msgspec lists first what is no Struct, then the Structs (in an `anyOf` of their own, if they
    are several and not all there is), then null.
    """
    options = list(schema["anyOf"])
    structs: list[mi.Type] = []
    others: list[mi.Type] = []
    for member in info.types:
        kind = _bare(member)
        if isinstance(kind, mi.StructType) and not kind.array_like:
            structs.append(kind)
        elif not isinstance(kind, mi.NoneType):
            others.append(member)
    struct_options = options[len(others) :]
    if struct_options and "anyOf" in struct_options[0]:
        struct_options = struct_options[0]["anyOf"]
    return list(zip(others, options, strict=False)) + list(
        zip(structs, struct_options, strict=False)
    )


def _key_schema(key_type: mi.Type) -> dict[str, Any] | None:
    """What the text of a key must be when the declared key is no string."""
    kind = _bare(key_type)
    if isinstance(kind, mi.EnumType):
        return {"enum": [str(member.value) for member in kind.cls]}
    if isinstance(kind, mi.LiteralType):
        return {"enum": [str(value) for value in kind.values]}
    return _KEY_SCHEMAS.get(type(kind))
