"""The strict profile of JSON: what is refused, and that the path is exact."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from time import perf_counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InvalidPayload, PayloadTooLarge
from duly.registry import strict_json
from duly.registry.strict_json import LARGEST_INTEGER, MAX_DEPTH, SMALLEST_INTEGER

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(SMALLEST_INTEGER, LARGEST_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)

DEEP_PATH = "$" + "[0]" * MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        (b'{"orders":[1,2,{"price":NaN}]}', "$.orders[2].price", "NaN"),
        (b"[0, Infinity]", "$[1]", "infinity"),
        (b"-Infinity", "$", "infinity"),
        (b'{"a":1e999}', "$.a", "too large"),
        (b"[-1e999]", "$[0]", "too large"),
        (b'{"a":9223372036854775808}', "$.a", "64 bits"),
        (b'{"a":-9223372036854775809}', "$.a", "64 bits"),
        (b'{"a":[' + b"1" * 100_000 + b"]}", "$.a[0]", "64 bits"),
        (rb'{"a":"\ud800"}', "$.a", "surrogate"),
        (rb'{"a":["x","\udc00\ud800"]}', "$.a[1]", "surrogate"),
        (rb'{"\udfff":1}', r'$["\udfff"]', "surrogate"),
        ('["\ud800"]', "$[0]", "surrogate"),
        (rb'{"a":"x\u0000y"}', "$.a", "NUL"),
        (rb'{"a":{"x\u0000":1}}', r'$.a["x\u0000"]', "NUL"),
        (b'{"a":{"b":1,"c":2,"b":3}}', "$.a.b", "more than once"),
        (rb'{"a":1,"\u0061":2}', "$.a", "more than once"),
        (b'[{"odd key":{"x":1,"x":1}}]', '$[0]["odd key"].x', "more than once"),
        (b'{"a":"\xff"}', "$.a", "UTF-8"),
        (b'{"a":["\xc0\x80"]}', "$.a[0]", "UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "$.a", "UTF-8"),
        (b"\xef\xbb\xbf{}", "$", "byte order mark"),
        ("\ufeff{}", "$", "byte order mark"),
        (b"{} {}", "$", "line 1, column 4"),
        (b"1 x", "$", "Extra data"),
        (b"", "$", "not valid JSON"),
        (b"[1,]", "$", "not valid JSON"),
        (b"{'a':1}", "$", "not valid JSON"),
        (b'"a\x00b"', "$", "not valid JSON"),
        (b'["a\nb"]', "$", "not valid JSON"),
        (b"\xff\xfe{\x00}\x00", "$", "not valid JSON"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), DEEP_PATH, "64 levels"),
        (b"[" * 1_000_000, DEEP_PATH, "64 levels"),
        (b'{"a":' * 1_000_000, "$" + ".a" * MAX_DEPTH, "64 levels"),
        (b'[1,{"a":"]]["},' + b"[" * 99, "$[2]" + "[0]" * (MAX_DEPTH - 1), "64 levels"),
        (b'[{"a":0,"b":0,"a":' * 99, "$[0].a", "more than once"),
        (b"}" * 99 + b"[" * 999, "$", "not valid JSON"),
    ],
    ids=count(),
)
def test_hostile_text_is_refused_with_its_path(text: bytes | str, path: str, problem: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        strict_json.decode(text)
    assert caught.value.path == path
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b" [1, 2.5, true, null] ",
        b"9223372036854775807",
        b"-9223372036854775808",
        rb'"\ud83d\ude00"',
        b'{"":1}',
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'["' + b"[" * 1000 + b'"]',
        b"[" + b"[],{}," * 1000 + b"0]",
        rb'["\\u0000", "\"[[[["]',
    ],
    ids=count(),
)
def test_text_within_the_profile_is_decoded(text: bytes) -> None:
    assert strict_json.decode(text) == json.loads(text)


def test_a_lower_depth_can_be_asked_for() -> None:
    assert strict_json.decode("[[]]", max_depth=2) == [[]]
    with pytest.raises(InvalidPayload, match=r"\$\[0\]\[0\]: nested too deeply: 2 levels"):
        strict_json.decode("[[[]]]", max_depth=2)


@pytest.mark.parametrize(
    "text",
    [b'"' + b'\\"' * 500_000, b"[" * 500_000 + b'"' + b"\\" * 500_001, b'"[' * 300_000],
    ids=count(),
)
def test_hostile_text_takes_linear_time(text: bytes) -> None:
    started = perf_counter()
    with pytest.raises(InvalidPayload):
        strict_json.decode(text)
    assert perf_counter() - started < 5


def test_a_long_key_is_cut_and_a_hostile_one_is_escaped() -> None:
    with pytest.raises(InvalidPayload) as caught:
        strict_json.check({"k" * 10_000: math.nan})
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidPayload) as caught:
        strict_json.check({"\x1b[31m\u202e": math.nan})
    assert caught.value.path == r'$["\u001b[31m\u202e"]'


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": [1, (2, math.nan)]}, "$.a[1][1]", "NaN"),
        ([-math.inf], "$[0]", "infinity"),
        ({"a": 2**63}, "$.a", "64 bits"),
        ({"a": "\ud800"}, "$.a", "surrogate"),
        ({"a": {"\0": 1}}, r'$.a["\u0000"]', "NUL"),
        ({"a": {1: 2}}, "$.a", "a key is a int"),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "$.a", "datetime.datetime"),
        ([object()], "$[0]", "object"),
        ([{1, 2}], "$[0]", "set"),
        ([b"x"], "$[0]", "bytes"),
    ],
)
def test_values_are_checked_by_the_same_rules(value: object, path: str, problem: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        strict_json.check(value)
    assert caught.value.path == path
    assert problem in caught.value.problem


def test_check_says_where_the_value_stands() -> None:
    with pytest.raises(InvalidPayload) as caught:
        strict_json.check([math.nan], "$.metadata")
    assert caught.value.path == "$.metadata[0]"


def test_subclasses_of_builtins_pass() -> None:
    class Colour(StrEnum):
        RED = "red"

    strict_json.check(OrderedDict(a=Colour.RED, b=[True]))
    with pytest.raises(InvalidPayload):
        strict_json.check(OrderedDict(a=math.nan))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@dataclass
class Point:
    x: object
    y: object = 0


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": [math.nan]}, "$.a[0]", "NaN"),
        (Point(1, [math.inf]), "$.y[0]", "infinity"),
        ({"a": 2**63}, "$.a", "64 bits"),
        (Point(-(2**63) - 1), "$.x", "64 bits"),
        ({"a": ["\ud800"]}, "$.a[0]", "surrogate"),
        (Point({"\ud800": 1}), r'$.x["\ud800"]', "surrogate"),
        ({"a": "\0"}, "$.a", "NUL"),
        (Point("\0"), "$.x", "NUL"),
        ({1: "a", "1": "b"}, '$["1"]', "more than once"),
        (nested(MAX_DEPTH + 1), DEEP_PATH, "nested too deeply"),
        (nested(100_000), DEEP_PATH, "nested too deeply"),
        (cyclic(), DEEP_PATH, "nested too deeply"),
        (Point([lambda: 1]), "$.x[0]", "a function cannot be stored as JSON"),
        ({"a": {(1, 2): 3}}, "$.a", "tuple"),
        ([{1, 2j}], "$[0][", "complex"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_its_path(
    value: object, path: str, problem: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        strict_json.encode(value)
    assert caught.value.path.startswith(path)
    assert problem in caught.value.problem


def test_encode_takes_what_msgspec_encodes() -> None:
    moment = datetime(2026, 1, 31, 9, tzinfo=UTC)
    assert strict_json.encode(Point(moment, {2: None})) == (
        b'{"x":"2026-01-31T09:00:00Z","y":{"2":null}}'
    )
    assert strict_json.encode(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


@settings(deadline=None)
@given(json_values)
def test_what_passes_comes_back_as_it_went_in(value: object) -> None:
    strict_json.check(value)
    data = strict_json.encode(value)
    assert strict_json.decode(data) == value
    assert msgspec.json.decode(data) == value


@settings(deadline=None)
@given(st.recursive(st.none() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_check_and_encode_agree(value: object) -> None:
    """Whatever `check` lets pass encodes, and decodes under the same rules; nothing else does."""
    refused = refused_path(strict_json.check, value)
    assert refused_path(strict_json.encode, value) == refused
    if refused is None:
        assert strict_json.decode(strict_json.encode(value)) == value


def refused_path(function: Callable[[object], object], value: object) -> str | None:
    try:
        function(value)
    except InvalidPayload as error:
        return error.path
    return None


@settings(deadline=None)
@given(st.binary() | st.text().map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        value = strict_json.decode(data)
    except InvalidPayload:
        return
    assert msgspec.json.decode(data) == value


def test_the_size_is_limited() -> None:
    strict_json.check_size(b"1234", "the arguments", 4)
    with pytest.raises(PayloadTooLarge, match="the arguments would take 5 bytes, the limit is 4"):
        strict_json.check_size(b"12345", "the arguments", 4)
