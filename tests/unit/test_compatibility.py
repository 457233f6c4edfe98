"""Results are refused as arguments only where they are sure not to fit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from duly.registry.compatibility import accepts_null, fits, items_of


@dataclass
class Order:
    number: int


class Row(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    ("result", "parameter"),
    [
        (int, int),
        (int, float),
        (int, Any),
        (Any, int),
        (list[int], list[float]),
        (list[int], tuple[int, ...]),
        (set[str], list[str]),
        (list, list[int]),
        (dict[str, int], dict[str, float]),
        (Order, dict[str, int]),
        (Row, Order),
        (UUID, str),
        (str, datetime),
        (int | None, int),
        (int | str, str),
        (Annotated[int, msgspec.Meta(ge=1)], int),
        (Decimal, float),
    ],
)
def test_what_may_fit(result: Any, parameter: Any) -> None:
    assert fits(result, parameter)


@pytest.mark.parametrize(
    ("result", "parameter"),
    [
        (int, str),
        (str, int),
        (float, int),
        (bool, int),
        (int, list[int]),
        (list[str], list[int]),
        (list[list[int]], list[int]),
        (dict[str, str], dict[str, int]),
        (Order, list[int]),
        (str, Row),
        (None, int),
        (UUID, datetime),
        (int | None, str),
    ],
)
def test_what_cannot_fit(result: Any, parameter: Any) -> None:
    assert not fits(result, parameter)


def test_items() -> None:
    assert items_of(list[int]) is int
    assert items_of(tuple[str, ...]) is str
    assert items_of(Any) is Any
    assert items_of(list) is Any
    assert items_of(int) is None
    assert items_of(dict[str, int]) is None


def test_null() -> None:
    assert accepts_null(int | None)
    assert accepts_null(Any)
    assert not accepts_null(int)
