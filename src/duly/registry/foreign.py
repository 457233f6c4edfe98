"""Types that msgspec leaves to its caller: pydantic models, and subclasses of builtins.

Pydantic is never imported here: a value of one of its models proves that it is loaded.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from duly.registry.structure import type_name


def is_model(kind: object) -> bool:
    """Whether `kind` is a pydantic model class."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_storable(kind: type) -> bool:
    """Whether a type that msgspec calls custom can be declared: `object` or a pydantic model."""
    return kind is object or is_model(kind)


def encode_hook(value: Any) -> object:
    """The JSON form of a value that msgspec does not encode by itself; TypeError if none."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(
        f"a {type_name(type(value))} cannot be stored as JSON: pass a plain value instead, "
        "such as an id, and load the object in the task"
    )


def decode_hook(kind: Any, value: object) -> object:
    """The value of a declared custom type; ValueError, without the input, if it does not fit."""
    if not is_model(kind):
        return value
    try:
        # As JSON, since a strict model takes the text of a datetime from JSON only.
        return kind.model_validate_json(msgspec.json.encode(value))
    except sys.modules["pydantic"].ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        told = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}"
            for problem in problems
        )
        raise ValueError(f"it does not fit {type_name(kind)}: {told}") from None


def model_schema(kind: Any, prefix: str) -> dict[str, Any]:
    """The JSON Schema of a model, its `$defs` to be placed at the root with `prefix`."""
    schema: dict[str, Any] = kind.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    return schema
