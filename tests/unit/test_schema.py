"""Checking by JSON Schema agrees with the decoder, and names what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Required, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from duly.errors import InvalidArguments, InvalidPayload
from duly.registry import strict_json
from duly.registry.arguments import ArgumentCodec
from duly.registry.schema import validate


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Node:
    value: int
    at: datetime | None = None
    next: Node | None = None
    marks: dict[str, list[Decimal]] = field(default_factory=dict)


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str


class Bird(msgspec.Struct):
    """Without a tag: the decoder lets a lone Struct's tag be left out, the schema does not."""

    name: str


class Row(msgspec.Struct, array_like=True):
    number: int
    at: time
    text: str = ""


class ClosedRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    number: int


class Settings(TypedDict, total=False):
    colour: Required[Colour]
    size: int


class Spot(NamedTuple):
    x: int
    y: float = 0.0


TYPES: list[Any] = [
    bool,
    int,
    float,
    str,
    bytes,
    None,
    Any,
    list,
    dict,
    datetime,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    Colour,
    Level,
    int | None,
    int | str | None,
    float | list[int],
    datetime | int | None,
    Literal["a", 1, None],
    list[int],
    set[str],
    frozenset[int],
    tuple[int, ...],
    tuple[int, str],
    tuple[()],
    dict[str, int],
    dict[int, str],
    dict[float, int],
    dict[UUID, int],
    dict[date, None],
    dict[Colour, int],
    dict[Literal["a", "b"], int],
    dict[str, list[datetime]],
    Annotated[int, Meta(ge=0, lt=10)],
    Annotated[int, Meta(multiple_of=3)],
    Annotated[float, Meta(gt=0, le=1)],
    Annotated[str, Meta(min_length=1, max_length=2)],
    Annotated[str, Meta(pattern="^[ab]+$")],
    Annotated[list[int], Meta(min_length=1, max_length=2)],
    Annotated[dict[str, int], Meta(min_length=1, max_length=2)],
    dict[Annotated[str, Meta(min_length=2)], int],
    Node,
    list[Node] | None,
    Cat | Dog,
    Cat | Dog | None,
    Cat | Dog | list[time] | datetime,
    Bird | int,
    Row,
    ClosedRow | None,
    Settings,
    Spot,
]

texts = st.sampled_from([
    "", "a", "b", "abc", "1", "-1", "01", "1.5", "1e3", "nan", "red", "blue", "Cat", "Dog",
    "2026-01-31", "2026-02-30", "09:30:00", "09:30:00Z", "25:00:00", "2026-01-31T09:30:00Z",
    "2026-01-31T09:30:00+02:00", "2026-13-31T09:30:00Z", "P1D", "PT1H30M", "P1Y",
    "0194b8a6-5d1c-7e43-9f0a-3c2d1b4e5f60", "0194b8a65d1c7e439f0a3c2d1b4e5f60", "12.50",
    "aGVsbG8=", "aGVsbG8", "\U0001f600\U0001f600",
]) | st.text(max_size=3)  # fmt: skip
names = st.sampled_from([
    "a", "b", "value", "at", "next", "marks", "lives", "name", "type", "colour", "size", "1", "-2",
    "1.5", "red", "2026-01-31", "0194b8a6-5d1c-7e43-9f0a-3c2d1b4e5f60",
])  # fmt: skip
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-12, 12) | st.sampled_from([0.0, 0.5, 1.0]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = (
    st.fixed_dictionaries(
        {"value": st.integers(0, 3) | plain},
        optional={
            "at": texts | st.none(),
            "marks": st.dictionaries(names, st.lists(texts | st.floats(0, 1))),
            "next": st.fixed_dictionaries({"value": st.integers()}, optional={"at": texts}),
        },
    )
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["Cat", "Dog", "Cow", 1])},
        optional={"name": texts, "lives": st.integers() | texts, "extra": st.none()},
    )
    | st.fixed_dictionaries({"colour": texts}, optional={"size": plain})
    | st.dictionaries(names, st.integers() | texts, max_size=2)
    | st.tuples(st.integers(), texts, texts).map(list)
)


def codec_for(annotation: Any) -> ArgumentCodec:
    def task(value) -> None: ...  # type: ignore[no-untyped-def]

    task.__annotations__ = {"value": annotation}
    return ArgumentCodec(task, "shop.task")


def fits(value: object, schema: dict[str, Any]) -> bool:
    try:
        validate({"value": value}, schema, "shop.task")
    except InvalidArguments as error:
        return error.argument != "value"
    return True


def decodes(value: object, codec: ArgumentCodec) -> bool:
    try:
        codec.encode_object({"value": value})
    except InvalidArguments:
        return False
    return True


@pytest.mark.parametrize("annotation", TYPES, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_it_agrees_with_the_decoder(annotation: Any, data: st.DataObject) -> None:
    codec = codec_for(annotation)
    schema = msgspec.json.decode(msgspec.json.encode(codec.schema()))
    for value in data.draw(st.lists(plain | texts | objects, min_size=10, max_size=10)):
        if is_storable(value):
            assert fits(value, schema) == decodes(value, codec), value


def is_storable(value: object) -> bool:
    try:
        strict_json.check(value)
    except InvalidPayload:
        return False
    return True


class Customer(pydantic.BaseModel):
    name: str
    since: datetime
    friends: list[Customer] = []


def place_order(
    node: Node, pets: list[Cat | Dog], customer: Customer | None = None, **more: int
) -> None: ...


ORDER = ArgumentCodec(place_order, "place_order").schema()


@pytest.mark.parametrize(
    ("arguments", "argument", "problem"),
    [
        ([], None, "expected `object`, got `array`"),
        ({"pets": []}, "node", "it is required, and missing"),
        (
            {"node": {"value": 1}, "pets": [], "zz": 1},
            "zz",
            "known are: node, pets, customer, more",
        ),
        ({"node": 5, "pets": []}, "node", "expected `object`, got `int`"),
        ({"node": {}, "pets": []}, "node", "$.node.value: it is required, and missing"),
        ({"node": {"value": 1.0}, "pets": []}, "node", "$.node.value: expected `int`, got `float`"),
        (
            {"node": {"value": 1, "next": {"value": 1, "at": 5}}, "pets": []},
            "node",
            "$.node.next.at: expected `datetime | null`, got `int`",
        ),
        (
            {"node": {"value": 1, "at": "2026-01-31T09:30:00"}, "pets": []},
            "node",
            "$.node.at: a datetime without a time zone",
        ),
        (
            {"node": {"value": 1, "marks": {"odd key": ["1.5", "x"]}}, "pets": []},
            "node",
            "$.node.marks[\"odd key\"][1]: expected a Decimal as text, such as '12.50'",
        ),
        (
            {"node": {"value": 1}, "pets": [{"type": "Cat"}, {"type": "Dog", "name": 5}]},
            "pets",
            "$.pets[1].name: expected `str`, got `int`",
        ),
        (
            {"node": {"value": 1}, "pets": [{"type": "Cow"}]},
            "pets",
            "$.pets[0].type: expected one of 'Cat', 'Dog'",
        ),
        (
            {"node": {"value": 1}, "pets": [{"type": ["Cat"]}]},
            "pets",
            "$.pets[0].type: expected one of",
        ),
        (
            {"node": {"value": 1}, "pets": [], "customer": {"name": "A", "since": "x"}},
            "customer",
            "$.customer.since: expected a datetime",
        ),
        (
            {
                "node": {"value": 1},
                "pets": [],
                "customer": {
                    "name": "A",
                    "since": "2026-01-31T09:30:00Z",
                    "friends": [{"name": 5, "since": "2026-01-31T09:30:00Z"}],
                },
            },
            "customer",
            "$.customer.friends[0].name: expected `str`, got `int`",
        ),
        (
            {"node": {"value": 1}, "pets": [], "more": {"x": "1"}},
            "more",
            "$.more.x: expected `int`",
        ),
    ],
)
def test_what_does_not_fit_is_named(arguments: object, argument: str | None, problem: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        validate(arguments, ORDER, "place_order")
    assert caught.value.argument == argument
    assert caught.value.task == "place_order"
    assert problem in str(caught.value)


def test_what_fits_passes() -> None:
    validate(
        {
            "node": {"value": 1, "next": {"value": 2, "at": "2026-01-31T09:30:00Z"}},
            "pets": ({"type": "Dog", "name": "Rex"},),
            "customer": None,
            "more": {"x": 1},
        },
        ORDER,
        "place_order",
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"unknownKeyword": 5},
        {"type": "string", "format": "unknown-format"},
        {"type": "unknown-type"},
        {"type": "string", "pattern": "(?P<broken"},
        {"$ref": "#/$defs/missing"},
        {"additionalProperties": True},
        {"const": "x"},
        True,
    ],
)
def test_unknown_keywords_are_ignored(schema: Any) -> None:
    validate({"value": "x"}, {"properties": {"value": schema}}, "task")


@pytest.mark.parametrize(
    "schema", [{"const": "y"}, {"const": 1}, {"enum": []}, False, {"type": ["null", "integer"]}]
)
def test_other_values_are_refused(schema: Any) -> None:
    with pytest.raises(InvalidArguments):
        validate({"value": "x"}, {"properties": {"value": schema}}, "task")


@pytest.mark.parametrize("annotation", TYPES, ids=str)
def test_a_value_is_never_shown(annotation: Any) -> None:
    """Arguments are kept out of logs, and so out of messages."""
    secret = {"hunter2": ["hunter3"]}
    schema = codec_for(tuple[annotation, annotation, annotation, int]).schema()
    with pytest.raises(InvalidArguments) as caught:
        validate({"value": ["hunter3", secret, [secret], "hunter3"]}, schema, "task")
    assert "hunter3" not in str(caught.value)


def test_utc_moments_fit() -> None:
    moment = msgspec.json.decode(msgspec.json.encode(datetime(2026, 1, 31, tzinfo=UTC)))
    assert fits(moment, codec_for(datetime).schema())
