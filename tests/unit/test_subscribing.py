"""Which events start which jobs."""

from __future__ import annotations

from typing import Any

import pytest

from duly.errors import InvalidOption
from duly.model.catalogue import CatalogueEntry
from duly.model.event import EventRecord, Subscription
from duly.model.identifiers import new_id
from duly.policy.subscribing import conditions, drafts_for, event_name, event_pattern, fits, holds


@pytest.mark.parametrize(
    ("pattern", "name", "fit"),
    [
        ("order.paid", "order.paid", True),
        ("order.paid", "order.paid.late", False),
        ("order.*", "order.paid", True),
        ("order.*", "order.refund.asked", True),
        ("order.*", "order", False),
        ("*.created", "user.created", True),
        ("*.created", "user.group.created", False),
        ("*", "anything.at.all", True),
        ("order.*.asked", "order.refund.asked", True),
        ("order.*", "orders.paid", False),
    ],
)
def test_patterns(pattern: str, name: str, fit: bool) -> None:
    assert fits(pattern, name) is fit


@pytest.mark.parametrize(
    ("where", "payload", "right"),
    [
        ({}, None, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, None, False),
        ({"a": 1}, [1], False),
        ({"a": [1, 2]}, {"a": 2}, True),
        ({"a": [1, 2]}, {"a": 3}, False),
        ({"a.b": "x"}, {"a": {"b": "x"}}, True),
        ({"a.b": "x"}, {"a": "b"}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
    ],
)
def test_conditions(where: dict[str, Any], payload: Any, right: bool) -> None:
    assert holds(where, payload) is right


def test_a_signal_starts_nothing() -> None:
    entry = CatalogueEntry(name="task", schema={}, queue="mail", expires_after=5.0)
    subscription = Subscription(name="s", pattern="*", entry=entry, argument="event")
    event = EventRecord(id="1", name="order.paid", payload='{"a":1}', key="k")
    (draft,) = drafts_for(event, [subscription])
    assert (draft.task, draft.queue) == ("task", "mail")
    assert '"payload":{"a":1}' in draft.arguments
    signal = EventRecord(id="2", name="order.paid", payload="null", job_id=new_id())
    assert drafts_for(signal, [subscription]) == []


@pytest.mark.parametrize(
    "name", ["", "order paid", ".order", "order.", "a..b", "order.*", "x" * 129]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"order\.paid"):
        event_name(name)


@pytest.mark.parametrize("pattern", ["", "order.**", "or*er", ".", 7])
def test_bad_patterns(pattern: object) -> None:
    with pytest.raises(InvalidOption, match="not a pattern"):
        event_pattern(pattern)


@pytest.mark.parametrize("where", [[], "a", {1: 2}])
def test_bad_conditions(where: object) -> None:
    with pytest.raises(InvalidOption, match="not a set of conditions"):
        conditions(where)
