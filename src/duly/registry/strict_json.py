"""The strict profile of JSON: the one form in which values enter and leave the store.

Refused, each with the path of the offending value: nesting deeper than `MAX_DEPTH`, NaN and
infinities (also numbers too large for a double, such as 1e999), integers outside
-2**63 .. 2**63-1, lone surrogates and NUL characters (in keys too), duplicate keys, invalid
UTF-8, a byte order mark, and text after the value. What passes means the same to every engine,
and comes back as it went in.

A path is `$` for the whole value, then `.name` or `["odd name"]` for a member of an object and
`[2]` for an item of an array: `$.orders[2].price`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from math import isfinite
from typing import Any

import msgspec

from duly.errors import InvalidPayload, PayloadTooLarge
from duly.registry import foreign
from duly.registry.structure import parts, type_name

MAX_DEPTH = 64
SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1

_SHOWN_KEY_LENGTH = 80
_BEYOND_64_BITS = LARGEST_INTEGER + 1
# An unterminated string is taken to the end of the text: a match always succeeds, so that the
# scan stays linear on hostile text.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_STRINGS = re.compile(_STRING, re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_STRINGS_AND_BRACKETS = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_LEVELS = {"[": 1, "{": 1, "]": -1, "}": -1}
_CLOSING = {"[": "]", "{": "}"}
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19

_NOT_UNICODE = "not valid Unicode: a lone surrogate, or bytes that are not UTF-8"
_BIG_INTEGER = "an integer beyond 64 bits: pass it as a string"
_TOO_DEEP = "nested too deeply"

_encoder = msgspec.json.Encoder(enc_hook=foreign.encode_hook)


class _DuplicateKey(dict[str, object]):
    """An object in which a key was given more than once."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        ((self.key, _),) = Counter(key for key, _ in pairs).most_common(1)


class _Offence(Exception):
    """What is wrong; each level of the walk adds its step while the exception passes it."""

    def __init__(self, problem: str, *steps: str | int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps = list(steps)


def render_path(steps: Iterable[str | int], start: str = "$") -> str:
    """The path as text, `$.orders[2]["odd name"]`; a very long key is cut."""
    text = [start]
    for step in steps:
        if isinstance(step, int):
            text.append(f"[{step}]")
        elif len(step) > _SHOWN_KEY_LENGTH:
            text.append(f"[{json.dumps(step[:_SHOWN_KEY_LENGTH])}...]")
        elif step.isidentifier() and step.isascii():
            text.append(f".{step}")
        else:
            text.append(f"[{json.dumps(step)}]")
    return "".join(text)


def decode(text: bytes | str, *, max_depth: int = MAX_DEPTH) -> object:
    """The value of a JSON text from outside.

    Raises InvalidPayload, with the exact path, for anything outside the strict profile. Depth
    is judged before the text is parsed. A text that is no JSON has the path `$`, and the
    problem names line and column.
    """
    if isinstance(text, bytes):
        # Bytes that are not UTF-8 become surrogates, which the walk finds in their place.
        text = text.decode(errors="surrogateescape")
    if text.startswith("\ufeff"):
        raise InvalidPayload("$", "it begins with a byte order mark: send UTF-8 without one")
    if text.count("[") + text.count("{") > max_depth:
        _check_depth(text, max_depth)
    value = _parse(text)
    _check(value, "$", max_depth)
    return value


def check(value: object, path: str = "$") -> None:
    """Refuse with InvalidPayload a value of Python's builtins outside the strict profile.

    Dictionaries with string keys, lists, tuples, strings, integers, floats, booleans and None
    may pass, subclasses of them too; any other type is refused. `path` is where `value` stands.
    """
    _check(value, path, MAX_DEPTH)


def encode(value: object) -> bytes:
    """A value as JSON bytes within the strict profile.

    Takes what msgspec encodes (builtins, dataclasses, datetimes, ...) and pydantic models.
    Raises InvalidPayload with the path of what cannot be encoded or lies outside the profile.
    """
    try:
        _walk(value, MAX_DEPTH)
    except _Offence:
        # Not plain, or outside the profile: that takes a closer look.
        plain = False
    else:
        plain = True
    try:
        data = _encoder.encode(value)
    except Exception as error:
        steps, cause = culprit(_encoder, value, error)
        raise InvalidPayload(render_path(steps), describe(cause)) from error
    if not plain:
        verify(data, value)
    return data


def culprit(
    encoder: msgspec.json.Encoder, value: object, error: Exception
) -> tuple[list[str | int], Exception]:
    """The way to the innermost part of `value` that `encoder` fails on, and that failure.

    `error` is the failure on `value` itself.
    """
    steps: list[str | int] = []
    while len(steps) < MAX_DEPTH:
        for step, part in parts(value):
            try:
                encoder.encode(part)
            except Exception as cause:
                value, error = part, cause
                steps.append(step)
                break
        else:
            break
    if isinstance(value, int):
        error = ValueError(_BIG_INTEGER)
    elif isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        error = TypeError(_foreign_key(next(key for key in value if not isinstance(key, str))))
    return steps, error


def describe(error: Exception) -> str:
    """What a failure to encode means to the one who handed the value in."""
    if isinstance(error, UnicodeEncodeError):
        return _NOT_UNICODE
    if isinstance(error, RecursionError):
        return f"{_TOO_DEEP}, or it contains itself: {MAX_DEPTH} levels are the limit"
    return str(error)


def verify(data: bytes, value: object) -> None:
    """Refuse with InvalidPayload the bytes that msgspec made of `value`, if outside the profile.

    Cheap for usual values: only bytes that could hold something forbidden are looked at closely.
    """
    objects_of_its_own = isinstance(value, msgspec.Struct)
    if (
        data.count(b"{") > objects_of_its_own
        or data.count(b"[") >= MAX_DEPTH
        or b"\\u0000" in data
        or (len(data) >= len(_LONG_NUMBER) and _LONG_NUMBER in data.translate(_DIGITS_TO_ZERO))
    ):
        decode(data)
    if b"null" in data:
        # msgspec writes NaN and infinities as null: only the value itself can tell.
        check(msgspec.to_builtins(value, str_keys=True, enc_hook=foreign.encode_hook))


def check_size(data: bytes, what: str, limit: int) -> None:
    """Refuse with PayloadTooLarge more than `limit` bytes; `what` names them to the user."""
    if len(data) > limit:
        raise PayloadTooLarge(what, len(data), limit)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _DuplicateKey(pairs)


def _integer(digits: str) -> int:
    # Python's own conversion takes quadratic time, or refuses, when there are very many digits.
    return int(digits) if len(digits) <= 20 else _BEYOND_64_BITS


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def _parse(text: str) -> object:
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidPayload("$", f"not valid JSON: {error.msg} ({where})") from None


def _check_depth(text: str, max_depth: int) -> None:
    """Refuse a text whose brackets nest too deeply, without recursion."""
    brackets = _BRACKETS.findall(_STRINGS.sub("", text))
    if max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) <= max_depth:
        return
    # The text up to the offending bracket, with everything that is open closed, is shallow
    # enough to be parsed; the way to its very last value is the path.
    unclosed: list[str] = []
    for token in _STRINGS_AND_BRACKETS.finditer(text):
        level = _LEVELS.get(token[0], 0)
        if level < 0 and unclosed:
            unclosed.pop()
        elif level > 0 and len(unclosed) == max_depth:
            break
        elif level > 0:
            unclosed.append(_CLOSING[token[0]])
    shallow: Any = _parse(text[: token.start()] + "null" + "".join(reversed(unclosed)))
    _check(shallow, "$", max_depth)
    steps: list[str | int] = []
    while shallow is not None:
        step = len(shallow) - 1 if isinstance(shallow, list) else next(reversed(shallow))
        steps.append(step)
        shallow = shallow[step]
    raise InvalidPayload(render_path(steps), _too_deep(max_depth))


def _too_deep(levels: int) -> str:
    return f"{_TOO_DEEP}: {levels} levels are the limit"


def _check(value: object, path: str, max_depth: int) -> None:
    try:
        _walk(value, max_depth)
    except _Offence as offence:
        problem = offence.problem if offence.problem is not _TOO_DEEP else _too_deep(max_depth)
        raise InvalidPayload(render_path(reversed(offence.steps), path), problem) from None


def _walk(value: Any, depth: int) -> None:
    """Raise an _Offence at what is outside the profile; `depth` more levels may open."""
    kind = type(value)
    if kind is str:
        if "\0" in value or not value.isascii():
            _check_characters(value)
    elif kind is int:
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise _Offence(_BIG_INTEGER)
    elif value is None or kind is bool:
        pass
    elif kind is float:
        if not isfinite(value):
            raise _Offence("NaN, an infinity, or a number too large for a double")
    elif kind is dict:
        if depth == 0:
            raise _Offence(_TOO_DEEP)
        for key, item in value.items():
            if not isinstance(key, str):
                raise _Offence(_foreign_key(key))
            try:
                if "\0" in key or not key.isascii():
                    _check_characters(key)
                _walk(item, depth - 1)
            except _Offence as offence:
                offence.steps.append(key)
                raise
    elif kind is list or kind is tuple:
        if depth == 0:
            raise _Offence(_TOO_DEEP)
        for index, item in enumerate(value):
            try:
                _walk(item, depth - 1)
            except _Offence as offence:
                offence.steps.append(index)
                raise
    else:
        _walk(_plain(value), depth)


def _foreign_key(key: object) -> str:
    return f"a key is a {type_name(type(key))}: keys must be strings"


def _plain(value: object) -> object:
    """A value of a subclass of a builtin as that builtin; an _Offence for any other."""
    if isinstance(value, _DuplicateKey):
        raise _Offence("the key is given more than once", value.key)
    if isinstance(value, str | int | float):
        return foreign.encode_hook(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    raise _Offence(f"a {type_name(type(value))} is not a JSON value")


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise _Offence("a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Offence(_NOT_UNICODE) from None
