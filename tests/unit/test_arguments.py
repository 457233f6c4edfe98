"""Arguments and results: what is stored, what comes back, and what is refused."""

from __future__ import annotations

import functools
import io
import math
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NoReturn,
    TypedDict,
    Unpack,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import ConfigurationError, InvalidArguments, InvalidInput, InvalidPayload
from duly.registry.arguments import ArgumentCodec, ResultCodec
from duly.registry.schema import validate

if TYPE_CHECKING:
    from collections.abc import Hashable as OnlyForTypeCheckers

MOMENT = datetime(2026, 1, 31, 9, 30, 0, 5, tzinfo=UTC)
NAIVE = datetime(2026, 1, 31, 9, 30)  # noqa: DTZ001
BERLIN = ZoneInfo("Europe/Berlin")
CustomerId = NewType("CustomerId", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Number(int):
    pass


class Ratio(float):
    pass


@dataclass
class Line:
    price: float
    note: Any = None


@dataclass
class Order:
    id: int
    at: datetime
    lines: list[Line] = field(default_factory=list)
    parent: Order | None = None


@dataclass(eq=False)
class Incomparable:
    value: Decimal


@dataclass
class SpecialLine(Line):
    discount: float = 0.0


class Payment(msgspec.Struct, tag="payment"):
    amount: Decimal


class Refund(msgspec.Struct, tag="refund", rename="camel"):
    paid_back: bool


@attrs.define
class Parcel:
    weight: float


class Address(TypedDict, total=False):
    city: str


class Place(NamedTuple):
    x: int
    y: int = 0


Pair = namedtuple("Pair", ["left", "right"])


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    name: str = pydantic.Field(alias="fullName")
    since: datetime
    friends: list[Customer] = []
    score: float | None = None

    @pydantic.field_validator("name")
    @classmethod
    def not_empty(cls, name: str) -> str:
        if not name:
            raise ValueError("must not be empty")
        return name

    @pydantic.computed_field
    def shout(self) -> str:
        return self.name.upper()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def codec_for(annotation: Any) -> ArgumentCodec:
    def task(value) -> None: ...  # type: ignore[no-untyped-def]

    task.__annotations__ = {"value": annotation}
    return ArgumentCodec(task, "shop.task")


def there_and_back(annotation: Any, value: Any) -> Any:
    codec = codec_for(annotation)
    data = codec.encode((value,), {})
    assert codec.encode_object(msgspec.json.decode(data)) == data
    args, kwargs = codec.decode(data)
    assert args == ()
    return kwargs["value"]


def refused(codec: ArgumentCodec, *args: Any, **kwargs: Any) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        codec.encode(args, kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "text"),
        (str, "<b>'; drop table jobs; --\n\x1b[31m\u202e../ \U0001f600"),
        (str, Text("text")),
        (int, Number(5)),
        (float, Ratio(0.5)),
        (int, -(2**63)),
        (int, Level.LOW),
        (Level, Level.LOW),
        (float, 1),
        (float, 1.5),
        (bool, True),
        (None, None),
        (int | None, None),
        (str | int, 5),
        (Literal["a", 1], 1),
        (CustomerId, CustomerId(7)),
        (Annotated[int, msgspec.Meta(ge=1)], 1),
        (datetime, MOMENT),
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)),
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
        (datetime, datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)),
        (list[datetime], [datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)]),
        (Annotated[datetime, msgspec.Meta(tz=False)], NAIVE),
        (date, date(2026, 1, 31)),
        (time, time(9, 30)),
        (timedelta, timedelta(days=1, microseconds=1)),
        (Decimal, Decimal("0.10")),
        (Decimal, 5),
        (UUID, UUID(int=1)),
        (Colour, Colour.RED),
        (bytes, b"\x00\xff"),
        (bytes, bytearray(b"x")),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (set[int], frozenset({1})),
        (Sequence[int], [1]),
        (Mapping[str, int], {"a": 1}),
        (dict[int, str], {1: "a", -2: "b"}),
        (dict[UUID, int], {UUID(int=1): 1}),
        (dict[date, int], {date(2026, 1, 31): 1}),
        (dict[str, Any], {"odd key": [None, {"deep": 1.5}]}),
        (dict[str, object], {"a": [1, "x"]}),
        (object, {"a": None}),
        (Any, [True, None, 1, "x", {"a": []}]),
        (Line, Line(1.5, {"a": [1]})),
        (Order, Order(1, MOMENT, [Line(1.0)], Order(2, MOMENT))),
        (Payment | Refund, Payment(Decimal("1.50"))),
        (Payment | Refund | None, Refund(True)),
        (Parcel, Parcel(1.5)),
        (Address, {"city": "Bonn"}),
        (Place, Place(1)),
        (Customer, Customer(fullName="Ada", since=MOMENT)),
        (Customer | None, Customer(fullName="Ada", since=MOMENT, score=1.5)),
        (list[Customer], [Customer(fullName="A", since=MOMENT)]),
    ],
)
def test_values_arrive_as_they_were_given(annotation: Any, value: Any) -> None:
    arrived = there_and_back(annotation, value)
    if isinstance(value, datetime) and value.tzinfo:
        assert arrived.astimezone(UTC) == value.astimezone(UTC)
    elif isinstance(value, list) and isinstance(value[0], datetime):
        assert arrived[0].astimezone(UTC) == value[0].astimezone(UTC)
    else:
        assert arrived == value


def test_a_tuple_may_stand_for_a_list_and_arrives_as_declared() -> None:
    assert there_and_back(list[int], (1, 2)) == [1, 2]
    assert there_and_back(tuple[int, ...], [1, 2]) == (1, 2)
    assert there_and_back(Place, (1, 2)) == Place(1, 2)
    assert there_and_back(Any, {"a": (1, (2,))}) == {"a": [1, [2]]}


def test_objects_that_cannot_be_compared_are_compared_by_their_parts() -> None:
    assert there_and_back(Incomparable, Incomparable(Decimal("1.0"))).value == Decimal("1.0")
    assert there_and_back(Decimal, Decimal("NaN")).is_nan()


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (int, "5", ["expected `int`, got `str`"]),
        (int, True, ["expected `int`, got `bool`"]),
        (int, 1.0, ["expected `int`, got `float`"]),
        (int, UUID(int=1), ["expected `int`", "uuid.UUID"]),
        (float, "1.5", ["expected `float`, got `str`"]),
        (float, True, ["expected `float`, got `bool`"]),
        (float, 2**60 + 1, ["an integer that a float cannot hold"]),
        (bool, 1, ["expected `bool`, got `int`"]),
        (str, 5, ["expected `str`, got `int`"]),
        (str, None, ["expected `str`, got `null`"]),
        (str, b"raw", ["bytes would arrive as a str"]),
        (str, UUID(int=1), ["uuid.UUID would arrive as a str"]),
        (str, MOMENT, ["datetime.datetime would arrive as a str"]),
        (str, Colour.RED, ["Colour would arrive as a str"]),
        (bytes, "hello", ["base64"]),
        (bytes, "aGk=", ["str would arrive as a bytes"]),
        (UUID, str(UUID(int=1)), ["str would arrive as a uuid.UUID"]),
        (UUID, "nonsense", ["expected a UUID"]),
        (datetime, MOMENT.isoformat(), ["str would arrive as a datetime"]),
        (datetime, "tomorrow", ["expected a datetime", "2026-01-31T09:00:00Z"]),
        (datetime, NAIVE, ["datetime.now(UTC)", ".replace(tzinfo=...)"]),
        (datetime | None, NAIVE, ["datetime.now(UTC)"]),
        (dict[str, list[datetime]], {"a": [MOMENT, NAIVE]}, ["$.value.a[1]: ", "now(UTC)"]),
        (Order, Order(1, NAIVE), ["$.value.at: ", "datetime.now(UTC)"]),
        (datetime, MOMENT.replace(tzinfo=timezone(timedelta(seconds=30))), ["minutes"]),
        (Decimal, 0.1, ["float would arrive as a decimal.Decimal"]),
        (Colour, "red", ["str would arrive as a", "Colour"]),
        (Colour, "green", ["expected one of 'blue', 'red'"]),
        (Literal["a", "b"], "c", ["expected one of 'a', 'b'"]),
        (Annotated[int, msgspec.Meta(ge=1)], 0, ["expected at least 1"]),
        (Annotated[str, msgspec.Meta(pattern="^a$")], "b", ["the pattern '^a$'"]),
        (list[int], [1, "2"], ["$.value[1]: expected `int`, got `str`"]),
        (list[int], {1}, ["set would arrive as a list"]),
        (set[int], [1], ["list would arrive as a set"]),
        (dict[str, list[int]], {"odd key": [1, None]}, ['$.value["odd key"][1]: expected `int`']),
        (dict[int, int], {"x": 1}, ["$.value.x: "]),
        (Order, Order("1", MOMENT), ["$.value.id: expected `int`, got `str`"]),  # type: ignore[arg-type]
        (Order, Order(1, MOMENT, [Line("1")]), ["$.value.lines[0].price: "]),  # type: ignore[arg-type]
        (Order, {"id": 1, "at": MOMENT}, ["dict would arrive as a", "Order"]),
        (Order, Line(1.0), ["$.value.id: it is required, and missing"]),
        (Line, SpecialLine(1.0), ["SpecialLine would arrive as a", "Line"]),
        (Payment | Refund, Line(1.0), ["$.value.type: it is required"]),
        (Payment | Refund, {"type": "gift"}, ["$.value.type: expected one of 'payment', 'refund'"]),
        (Address, {"city": "Bonn", "zip": "53111"}, ["$.value.zip: ", "lost"]),
        (Any, MOMENT, ["datetime.datetime would arrive as a str", "declare"]),
        (Any, Line(1.0), ["Line would arrive as a dict"]),
        (Any, {"a": [Colour.RED]}, ["$.value.a[0]: ", "Colour would arrive as a str"]),
        (Any, {1: 2}, ["a key of type int"]),
        (Any, {1, 2}, ["set would arrive as a list"]),
        (Any, Pair(1, 2), ["Pair would arrive as a list"]),
        (Any, Customer(fullName="Ada", since=MOMENT), ["Customer would arrive as a dict"]),
        (Any, lambda: 1, ["function cannot be stored", "such as an id"]),
        (Any, {"a": [threading.Lock()]}, ["$.value.a[0]: ", "lock cannot be stored"]),
        (Any, io.StringIO(), ["StringIO cannot be stored"]),
        (Line, Line(1.0, note=object()), ["$.value.note: ", "object cannot be stored"]),
        (Customer, {"fullName": "Ada"}, ["since"]),
        (Customer, Customer.model_construct(name="", since=MOMENT), ["must not be empty"]),
    ],
)
def test_wrong_values_are_refused_by_name_and_path(
    annotation: Any, value: Any, words: list[str]
) -> None:
    error = refused(codec_for(annotation), value)
    assert error.argument == "value"
    assert str(error).startswith("task 'shop.task', argument 'value': ")
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (float, math.nan, "$.value"),
        (float | None, math.inf, "$.value"),
        (Any, {"a": [1, math.nan]}, "$.value.a[1]"),
        (Line, Line(1.0, note=-math.inf), "$.value.note"),
        (Customer, Customer(fullName="A", since=MOMENT, score=math.nan), "$.value.score"),
        (int, 2**63, "$.value"),
        (dict[str, Any], {"n": [10**30]}, "$.value.n[0]"),
        (str, "\ud800", "$.value"),
        (dict[str, int], {"a\0": 1}, r'$.value["a\u0000"]'),
        (Any, nested(100), "$.value" + "[0]" * 63),
        (Any, nested(10_000), "$.value[0]"),
    ],
)
def test_values_outside_the_strict_profile_are_refused_with_their_path(
    annotation: Any, value: Any, path: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec_for(annotation).encode((value,), {})
    assert caught.value.path.startswith(path)


def send_email(to: str, subject: str, copies: int = 1, *, urgent: bool = False) -> str:
    return to + subject


EMAIL = ArgumentCodec(send_email, "send_email")


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "problem"),
    [
        (("a",), {}, "subject", "missing a required"),
        ((), {"subject": "b"}, "to", "missing a required"),
        (("a", "b", 1, True), {}, None, "too many positional arguments"),
        (("a", "b"), {"subjcet": "c"}, "subjcet", "unexpected keyword"),
        (("a", "b"), {"subject": "c"}, "subject", "multiple values"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_with_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], argument: str | None, problem: str
) -> None:
    error = refused(EMAIL, *args, **kwargs)
    assert error.argument == argument
    assert error.task == "send_email"
    assert problem in str(error)
    signature = "send_email(to: str, subject: str, copies: int = 1, *, urgent: bool = False)"
    assert str(error).endswith(signature)


def test_only_what_was_passed_is_stored() -> None:
    assert EMAIL.encode(("a", "b"), {}) == b'{"to":"a","subject":"b"}'
    assert EMAIL.encode(("a",), {"urgent": True, "subject": "b"}) == (
        b'{"to":"a","subject":"b","urgent":true}'
    )
    assert EMAIL.decode(b'{"subject":"b","to":"a"}') == ((), {"to": "a", "subject": "b"})
    assert EMAIL.decode('{"subject":"b","to":"a"}') == ((), {"to": "a", "subject": "b"})


def every_kind(
    first: int,
    second: int = 2,
    /,
    third: int = 3,
    *rest: int,
    key: str,
    last: int = 6,
    **more: float,
) -> tuple[object, ...]:
    return first, second, third, rest, key, last, more


def awkward(
    self: int, __struct_fields__: int = 1, _p0: int = 2, *, args: int, kwargs: int = 3
) -> object:
    return self, __struct_fields__, _p0, args, kwargs


def no_parameters() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (every_kind, (1,), {"key": "k"}),
        (every_kind, (1, 2), {"key": "k", "third": 5}),
        (every_kind, (1, 2, 3, 4, 5), {"key": "k", "last": 7}),
        (every_kind, (1,), {"key": "k", "first": 0.5, "extra": 1.5}),
        (awkward, (1,), {"args": 2}),
        (awkward, (1, 2, 3), {"args": 2, "kwargs": 4}),
        (no_parameters, (), {}),
        (functools.partial(send_email, "a"), ("b",), {}),
    ],
)
def test_every_kind_of_parameter_works(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    codec = ArgumentCodec(function, "task")
    data = codec.encode(args, kwargs)
    decoded_args, decoded_kwargs = codec.decode(data)
    assert function(*decoded_args, **decoded_kwargs) == function(*args, **kwargs)
    assert codec.encode_object(msgspec.json.decode(data)) == data


def test_collected_arguments_are_stored_under_their_own_name() -> None:
    codec = ArgumentCodec(every_kind, "task")
    assert msgspec.json.decode(codec.encode((1, 2, 3, 4), {"key": "k", "x": 1.5})) == {
        "first": 1,
        "second": 2,
        "third": 3,
        "rest": [4],
        "key": "k",
        "more": {"x": 1.5},
    }
    assert codec.decode(b'{"first":1,"key":"k","rest":[9]}') == ((1, 2, 3, 9), {"key": "k"})
    error = refused(codec, 1, 2, 3, "4", key="k")
    assert error.argument == "rest"
    assert "$.rest[0]: expected `int`" in str(error)
    with pytest.raises(InvalidArguments, match="argument 'last': it is given twice"):
        codec.encode_object({"first": 1, "key": "k", "more": {"last": 5}})


class Options(TypedDict, total=False):
    colour: Colour


def unpacked(**options: Unpack[Options]) -> None: ...


def test_keyword_arguments_can_have_a_typed_dict() -> None:
    codec = ArgumentCodec(unpacked, "task")
    assert codec.decode(codec.encode((), {"colour": Colour.RED})) == ((), {"colour": Colour.RED})
    refused(codec, colour="red")


def transactional(connection: threading.Lock, amount: int, **more: int) -> None: ...


def test_skipped_parameters_are_no_arguments() -> None:
    codec = ArgumentCodec(transactional, "task", skip=1)
    assert codec.encode((5,), {}) == b'{"amount":5}'
    assert list(codec.schema()["properties"]) == ["amount", "more"]
    assert refused(codec, 5, connection=6).argument == "connection"


def collect(item: int, into: list[int] = []) -> list[int]:  # noqa: B006
    into.append(item)
    return into


def test_a_mutable_default_is_neither_stored_nor_shared() -> None:
    codec = ArgumentCodec(collect, "task")
    assert codec.encode((1,), {}) == b'{"item":1}'
    assert codec.decode(b'{"item":1}') == ((), {"item": 1})
    assert codec.encode((1, []), {}) == b'{"item":1,"into":[]}'


def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class CallableTask:
    def __call__(self, number: int) -> int:
        return number

    def method(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    "function", [wrapper(CallableTask().method), CallableTask(), CallableTask().method]
)
def test_wrapped_functions_methods_and_callables_keep_their_types(
    function: Callable[..., Any],
) -> None:
    codec = ArgumentCodec(function, "task")
    assert codec.encode((1,), {}) == b'{"number":1}'
    assert refused(codec, "1").argument == "number"
    assert ResultCodec(function, "task").decode(b"1") == 1


@pytest.mark.parametrize(
    ("arguments", "argument", "words"),
    [
        ({"to": "a"}, "subject", "required, and missing"),
        ({"to": "a", "subject": "b", "extra": 1}, "extra", "known are: to, subject, copies"),
        ({"to": "a", "subject": 5}, "subject", "expected `str`, got `int`"),
        ({"to": "a", "subject": "b", "copies": None}, "copies", "expected `int`, got `null`"),
    ],
)
def test_arguments_by_name_are_checked(
    arguments: dict[str, object], argument: str, words: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        EMAIL.encode_object(arguments)
    assert caught.value.argument == argument
    assert words in str(caught.value)
    with pytest.raises(InvalidArguments) as caught:
        EMAIL.decode(msgspec.json.encode(arguments))
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Line, {"price": 1.0, "ntoe": 2}, "$.value.ntoe"),
        (dict[str, list[Line]], {"x": [{"price": 1.0, "no": 2}]}, "$.value.x[0].no"),
        (Parcel, {"weight": 1.0, "size": 3}, "$.value.size"),
        (Payment | Refund, {"type": "payment", "amount": "1", "note": ""}, "$.value.note"),
        (Address | None, {"city": "Ulm", "zip": 1}, "$.value.zip"),
    ],
)
def test_unknown_fields_of_objects_are_refused_by_name_and_by_schema(
    kind: Any, value: object, path: str
) -> None:
    codec = codec_for(kind)
    with pytest.raises(InvalidArguments, match="it is not expected here; known are: ") as caught:
        codec.encode_object({"value": value})
    assert path in str(caught.value)
    with pytest.raises(InvalidArguments, match="it is not expected here; known are: ") as caught:
        validate({"value": value}, codec.schema(), "task")
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10**5000, "an integer beyond 64 bits: pass it as a string"),
        ({"a": [{None: 1}]}, "a key is a NoneType: keys must be strings"),
        ({"a": {(1, 2): 1}}, "a key is a tuple: keys must be strings"),
    ],
    ids=["integer", "key none", "key tuple"],
)
def test_what_cannot_be_encoded_is_told_in_our_words(value: object, words: str) -> None:
    codec = codec_for(Any)
    assert words in str(refused(codec, value))
    with pytest.raises(InvalidPayload, match=words):
        codec.encode_object({"value": value})


def test_a_worker_passes_over_fields_that_newer_code_has_added() -> None:
    codec = codec_for(Line)
    data = b'{"value":{"price":1.0,"colour":"red"}}'
    assert codec.decode(data) == ((), {"value": Line(1.0)})


def place_order(id: int, at: datetime, lines: list[Line] | None = None) -> None: ...


def test_arguments_by_name_are_plain_json_or_what_becomes_it() -> None:
    codec = ArgumentCodec(place_order, "order")
    data = codec.encode_object({"id": 1, "at": "2026-01-31T09:30:00.000005Z"})
    assert codec.decode(data)[1]["at"] == MOMENT
    assert codec.encode_object({"id": 1, "at": MOMENT}) == data
    for naive in ("2026-01-31T09:30:00", NAIVE):
        with pytest.raises(InvalidArguments, match=r"argument 'at': a datetime without"):
            codec.encode_object({"id": 1, "at": naive})
    with pytest.raises(InvalidPayload) as caught:
        codec.encode_object({"id": 2**63, "at": MOMENT})
    assert caught.value.path == "$.id"


def test_stored_arguments_that_no_longer_fit_are_refused() -> None:
    for data in (b"{}", b"[]", b"not json", b'{"to":"a","subject":"b","gone":1}', b'{"to":"a"'):
        with pytest.raises(InvalidArguments):
            EMAIL.decode(data)


def test_what_a_model_refuses_is_told_without_the_value() -> None:
    codec = codec_for(list[Customer])
    with pytest.raises(InvalidArguments) as caught:
        codec.encode_object({"value": [{"fullName": "", "since": "2026-01-31T09:00:00Z"}]})
    assert caught.value.argument == "value"
    assert "fullName: Value error, must not be empty" in str(caught.value)
    assert "2026" not in str(caught.value)


def test_the_schema_describes_the_stored_object() -> None:
    schema = ArgumentCodec(every_kind, "shop.every").schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "shop.every"
    assert schema["required"] == ["first", "key"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["rest"] == {"type": "array", "items": {"type": "integer"}}
    schema = ArgumentCodec(place_order, "order").schema()
    assert schema["properties"]["at"] == {"type": "string", "format": "date-time"}
    assert set(schema["$defs"]) == {"Line"}
    msgspec.json.encode(codec_for(dict[str, Customer]).schema())


def unresolvable(known: int, unknown: OnlyForTypeCheckers) -> None: ...


def unresolvable_result() -> OnlyForTypeCheckers | None: ...


def test_a_hint_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ArgumentCodec(unresolvable, "task")
    assert "test_arguments.unresolvable: " in str(caught.value)
    assert "parameter 'unknown'" in str(caught.value)
    assert "TYPE_CHECKING" in str(caught.value)
    with pytest.raises(ConfigurationError, match="of the result cannot be resolved"):
        ResultCodec(unresolvable_result, "task")


@dataclass
class Holder:
    stream: io.StringIO


@pytest.mark.parametrize(
    "annotation",
    [io.StringIO, threading.Thread, Callable[[], int], list[complex], Holder, dict[str, type],
     Line | Parcel, str | bytes, "OnlyForTypeCheckers", list["OnlyForTypeCheckers"]],
)  # fmt: skip
def test_a_type_that_cannot_be_stored_is_refused_at_registration(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"parameter 'value'"):
        codec_for(annotation)


def test_pydantic_is_not_imported_for_others() -> None:
    program = (
        "import sys\n"
        "from duly.registry.arguments import ArgumentCodec\n"
        "def task(a: int, b: object): ...\n"
        "ArgumentCodec(task, 'task').encode((1, [2]), {})\n"
        "sys.exit('pydantic' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


orders = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    st.datetimes(timezones=st.just(UTC) | st.timezones()),
    st.lists(
        st.builds(
            Line,
            st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        ),
        max_size=3,
    ),
)


@settings(deadline=None)
@given(orders)
def test_any_order_arrives_or_is_refused(order: Order) -> None:
    codec = codec_for(Order)
    offset = order.at.utcoffset()
    assert offset is not None
    if offset.seconds % 60:
        refused(codec, order)
        return
    try:
        instant = order.at.astimezone(UTC)
    except OverflowError:
        return
    arrived = codec.decode(codec.encode((order,), {}))[1]["value"]
    assert (arrived.id, arrived.lines) == (order.id, order.lines)
    assert arrived.at.astimezone(UTC) == instant


@settings(deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes() | st.decimals() | st.uuids(),
    lambda inner: st.lists(inner) | st.sets(st.integers()) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=6,
))  # fmt: skip
def test_any_value_without_a_type_arrives_equal_or_is_refused(value: Any) -> None:
    codec = codec_for(Any)
    try:
        data = codec.encode((value,), {})
    except InvalidInput:
        return
    assert as_lists(codec.decode(data)[1]["value"]) == as_lists(value)


def as_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return value


async def coroutine_result() -> Order: ...  # type: ignore[empty-body]


def plain_result(): ...  # type: ignore[no-untyped-def]


def no_result() -> None: ...


def never_returns() -> NoReturn:
    raise RuntimeError


def optional_model() -> Customer | None: ...


def stream_result() -> io.StringIO: ...  # type: ignore[empty-body]


def numbers_result() -> dict[str, list[int]]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "value", "arrived"),
    [
        (coroutine_result, Order(1, MOMENT), None),
        (optional_model, Customer(fullName="Ada", since=MOMENT), None),
        (no_result, None, None),
        (never_returns, None, None),
        (plain_result, {"a": (1, MOMENT)}, {"a": [1, "2026-01-31T09:30:00.000005Z"]}),
        (plain_result, Line(1.0), {"price": 1.0, "note": None}),
    ],
)
def test_results_arrive_in_their_declared_type(
    function: Callable[..., Any], value: Any, arrived: Any
) -> None:
    codec = ResultCodec(function, "task")
    assert codec.decode(codec.encode(value)) == (value if arrived is None else arrived)


@pytest.mark.parametrize(
    ("function", "value", "path", "problem"),
    [
        (plain_result, {"a": [math.nan]}, "$.a[0]", "NaN"),
        (plain_result, {"a": "\ud800"}, "$.a", "surrogate"),
        (plain_result, {1: 1, "1": 2}, '$["1"]', "more than once"),
        (plain_result, [lambda: 1], "$[0]", "function cannot be stored"),
        (no_result, 5, "$", "'task' does not fit its annotation: Expected `null`, got `int`"),
        (coroutine_result, Order("1", MOMENT), "$.id", "Expected `int`, got `str`"),  # type: ignore[arg-type]
        (numbers_result, {"a": [1, "x"]}, "$[...][1]", "Expected `int`, got `str`"),
    ],
)
def test_a_result_that_cannot_be_kept_is_refused(
    function: Callable[..., Any], value: Any, path: str, problem: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        ResultCodec(function, "task").encode(value)
    assert caught.value.path == path
    assert problem in caught.value.problem


def test_a_result_type_that_cannot_be_stored_is_refused_at_registration() -> None:
    with pytest.raises(ConfigurationError, match=r"stream_result: its result cannot be kept"):
        ResultCodec(stream_result, "task")


def test_a_stored_result_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="does not fit its annotation"):
        ResultCodec(coroutine_result, "task").decode(b'{"id":"x"}')


class Shade(StrEnum):
    DARK = "dark"


def test_a_text_enum_is_text_where_nothing_is_declared() -> None:
    assert there_and_back(Any, [Shade.DARK]) == ["dark"]
