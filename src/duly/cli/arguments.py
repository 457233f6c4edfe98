"""A job's arguments as they are typed: name=value, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from duly.errors import InvalidArguments, InvalidInput, InvalidPayload, PayloadTooLarge
from duly.policy import options
from duly.registry import strict_json


def given_arguments(pairs: Sequence[str], text: str | None, payload_limit: int) -> dict[str, Any]:
    """The arguments by name, from pairs or from --args; `-` reads standard input."""
    if pairs and text is not None:
        raise click.UsageError("give arguments either as name=value or with --args, not both")
    if text is None:
        return _from_pairs(pairs)
    return object_from(text, payload_limit)


def object_from(text: str, payload_limit: int) -> dict[str, Any]:
    """The JSON object of --args; `-` reads standard input, never more than may be stored."""
    source: str | bytes = text
    if text == "-":
        source = sys.stdin.buffer.read(payload_limit + 1)
        if len(source) > payload_limit:
            raise PayloadTooLarge("what --args reads", len(source), payload_limit)
    try:
        value = strict_json.decode(source)
    except InvalidPayload as error:
        raise InvalidInput(f"--args: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(
            f"--args: expected a JSON object of arguments by name, such as "
            f'{{"to": "ada@example.com"}}; got {_kind(value)}'
        )
    return value


def priority(text: str) -> int:
    """The priority that --priority gives: a number or a name."""
    return options.priority(int(text) if text.isdecimal() else text, "--priority")


def with_hint(error: InvalidArguments, arguments: dict[str, Any]) -> InvalidInput:
    """The same error; where text was meant but typed as JSON, with how to type it."""
    value = arguments.get(error.argument or "")
    if isinstance(value, int | float) and "`str`" in str(error):
        typed = json.dumps(value)
        return InvalidInput(f"{error}; as text it is {error.argument}='\"{typed}\"'")
    return error


def _from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(
                f"argument {pair!a}: expected name=value, such as to=ada@example.com"
            )
        if name in arguments:
            raise click.UsageError(f"argument {name!a} is given twice")
        arguments[name] = _value(name, value)
    return arguments


def _value(name: str, text: str) -> Any:
    """JSON if it is JSON, else the text itself.

    JSON outside the strict profile (a number too large, a repeated key) is an error, not text.
    """
    try:
        return strict_json.decode(text)
    except InvalidPayload as error:
        if _is_json(text):
            raise InvalidInput(f"argument {name!a}: {error}") from error
        return text


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _kind(value: object) -> str:
    names = {list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
