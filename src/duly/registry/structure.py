"""What a Python value consists of, named the way its JSON form names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


def type_name(kind: Any) -> str:
    """A class or function as a person writes it: `int`, `shop.models.Order`."""
    name: str = kind.__qualname__
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def compared_fields(value: object) -> list[tuple[str, str]] | None:
    """What makes up a Struct, dataclass or attrs object and counts when two are compared, each
    as the attribute's name and its name in JSON; None for any other value."""
    kind: Any = type(value)
    if isinstance(value, msgspec.Struct):
        return list(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.name) for field in dataclasses.fields(kind) if field.compare]
    if hasattr(kind, "__attrs_attrs__"):
        return [(field.name, field.name) for field in kind.__attrs_attrs__ if field.eq]
    return None


def parts(value: object) -> Iterator[tuple[str | int, object]]:
    """The direct parts of a container or object with the step that leads to each.

    A key that is a string comes as a part of its own too, ahead of its item, since it can be at
    fault itself.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield key, key
            yield str(key), item
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(value)
    else:
        for name, shown in compared_fields(value) or ():
            yield shown, getattr(value, name, None)


def part_at(value: object, steps: Iterable[str | int]) -> object:
    """The part of a value that the steps lead to; None if there is none."""
    for step in steps:
        value = dict(parts(value)).get(step)
    return value
