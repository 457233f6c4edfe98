"""Does a value arrive as it was given? Compares what was handed in with what its JSON gives.

JSON has few types. A `bytes` for a parameter declared `str` would encode, and arrive as its
base64; a `datetime` where nothing is declared would arrive as a string; a field that the
declared class does not have would be lost. Such a value is refused when it is submitted.

Allowed differences: a tuple for a list and the other way round, a value of a subclass of a
builtin for its equal builtin, another time zone for the same instant.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from duly.registry import foreign
from duly.registry.structure import compared_fields, type_name

_SAME_IF_EQUAL = (str, int, float, bytes, bytearray, memoryview, set, frozenset)


class Changed(Exception):
    """A part that arrives differently. `steps` lead to it, innermost first."""

    def __init__(self, problem: str, *steps: str | int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps = list(steps)


def compare(given: Any, arrived: Any) -> None:
    """Raise Changed at the first part of `given` that is not the same in `arrived`."""
    if isinstance(given, list | tuple) and isinstance(arrived, list | tuple):
        _compare_sequences(given, arrived)
    elif isinstance(given, dict) and isinstance(arrived, dict):
        _compare_mappings(given, arrived)
    elif type(given) is not type(arrived):
        if not (isinstance(given, _SAME_IF_EQUAL) and given == arrived):
            raise Changed(_type_problem(given, arrived))
    elif isinstance(given, datetime):
        # Compared as instants: one in a repeated hour never equals one of another time zone.
        if given.tzinfo and given.astimezone(UTC) != arrived.astimezone(UTC):
            raise Changed("its time zone's offset is no whole number of minutes")
    elif not foreign.is_model(type(given)):
        _compare_objects(given, arrived)


def _compare_sequences(
    given: list[Any] | tuple[Any, ...], arrived: list[Any] | tuple[Any, ...]
) -> None:
    if type(given) is not type(arrived) and hasattr(given, "_fields"):
        raise Changed(_type_problem(given, arrived))
    if len(given) != len(arrived):
        raise Changed(f"{len(given)} items would arrive as {len(arrived)}")
    for index, (item, same) in enumerate(zip(given, arrived, strict=True)):
        _compare_part(index, item, same)


def _compare_mappings(given: dict[Any, Any], arrived: dict[Any, Any]) -> None:
    for key, item in given.items():
        if key in arrived:
            _compare_part(str(key), item, arrived[key])
        elif isinstance(key, str):
            raise Changed("the declared type has no such key: it would be lost", key)
        else:
            raise Changed(
                f"a key of type {type_name(type(key))} would arrive changed: "
                "declare the type of the keys, or use strings"
            )


def _compare_objects(given: Any, arrived: Any) -> None:
    fields = compared_fields(given)
    if fields is None:
        # Only what is unequal to itself, a Decimal NaN, may differ from what arrives.
        if given != arrived and given == given:
            raise Changed("it would arrive changed")
        return
    for name, shown in fields:
        _compare_part(shown, getattr(given, name), getattr(arrived, name))


def _compare_part(step: str | int, given: object, arrived: object) -> None:
    try:
        compare(given, arrived)
    except Changed as changed:
        changed.steps.append(step)
        raise


def _type_problem(given: object, arrived: object) -> str:
    came = type_name(type(given))
    if isinstance(given, int) and isinstance(arrived, float):
        return "an integer that a float cannot hold exactly"
    return (
        f"a {came} would arrive as a {type_name(type(arrived))}: pass that, "
        f"or declare the type as {came}"
    )
