"""Options: each is normalised, or refused with an example of a right one."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InvalidOption
from duly.model.job import Priority
from duly.policy import options

MOMENT = datetime(2026, 1, 31, 9, tzinfo=UTC)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("check", "value", "normal"),
    [
        (options.priority, 0, 0),
        (options.priority, 100, 100),
        (options.priority, "low", 1),
        (options.priority, "normal", 5),
        (options.priority, "High", 10),
        (options.priority, "URGENT", 20),
        (options.priority, Priority.HIGH, 10),
        (options.queue, "mail", "mail"),
        (options.queue, "a" * 128, "a" * 128),
        (options.task, "shop.tasks:send_email/v2-x", "shop.tasks:send_email/v2-x"),
        (options.task, "_private", "_private"),
        (options.key, "<b>'; drop table jobs; --\n\x1b[31m\u202e../", None),
        (options.key, "k" * 512, None),
        (options.owner, "ö" * 255, None),
        (options.tenant, "acme", None),
        (options.tags, [], ()),
        (options.tags, ["b", "a", "b"], ("b", "a")),
        (options.tags, ("x" * 128,), ("x" * 128,)),
        (options.tags, (str(number) for number in range(32)), tuple(map(str, range(32)))),
        (options.instant, MOMENT, MOMENT),
        (options.instant, MOMENT.astimezone(ZoneInfo("Asia/Tokyo")), MOMENT),
        (options.instant, "2026-01-31T10:00:00+01:00", MOMENT),
        (options.instant, "2026-01-31T09:00:00Z", MOMENT),
        (options.retries, 0, 0),
        (options.retries, 1000, 1000),
        (options.timeout, 30, timedelta(seconds=30)),
        (options.timeout, "1h", timedelta(hours=1)),
        (options.expires, "24h", timedelta(days=1)),
        (options.expires, timedelta(days=1), timedelta(days=1)),
        (options.expires, MOMENT, MOMENT),
        (options.expires, "2026-01-31T09:00:00Z", MOMENT),
    ],
)
def test_what_is_right_is_normalised(check: Callable[[Any], Any], value: Any, normal: Any) -> None:
    checked = check(value)
    assert checked == (value if normal is None else normal)
    if isinstance(checked, datetime):
        assert checked.tzinfo is UTC


@pytest.mark.parametrize(
    ("check", "value", "example"),
    [
        (options.priority, -1, "0 to 100"),
        (options.priority, 101, "0 to 100"),
        pytest.param(options.priority, 10**5000, "0 to 100", id="huge"),
        (options.priority, True, "0 to 100"),
        (options.priority, 5.0, "0 to 100"),
        (options.priority, math.nan, "0 to 100"),
        (options.priority, "highest", '"high"'),
        (options.priority, None, '"high"'),
        (options.priority, Unprintable(), '"high"'),
        (options.queue, "", '"mail"'),
        (options.queue, "-mail", '"mail"'),
        (options.queue, "two words", '"mail"'),
        (options.queue, "mail\n", '"mail"'),
        (options.queue, "post\u00e9", '"mail"'),
        (options.queue, "a" * 129, '"mail"'),
        (options.queue, "a\0", '"mail"'),
        (options.queue, 5, '"mail"'),
        (options.queue, "\u202email", '"mail"'),
        (options.task, "drop table;", '"shop.send_email"'),
        (options.task, b"mail", '"shop.send_email"'),
        (options.key, "", '"welcome:42"'),
        (options.key, "k" * 513, '"welcome:42"'),
        (options.key, "a\0b", '"welcome:42"'),
        (options.key, "\ud800", '"welcome:42"'),
        (options.key, 42, '"welcome:42"'),
        (options.owner, "o" * 256, "255"),
        (options.tenant, "\udfff", '"acme"'),
        (options.tags, "mail", '["mail", "eu"]'),
        (options.tags, b"mail", '["mail", "eu"]'),
        (options.tags, 5, '["mail", "eu"]'),
        (options.tags, [""], '"mail"'),
        (options.tags, ["x" * 129], '"mail"'),
        (options.tags, [5], '"mail"'),
        (options.tags, ["\0"], '"mail"'),
        (options.tags, map(str, range(33)), "at most 32"),
        (options.instant, datetime(2026, 1, 31), "datetime.now(UTC)"),  # noqa: DTZ001
        (options.instant, datetime(2026, 1, 31), ".replace(tzinfo=...)"),  # noqa: DTZ001
        (options.instant, "2026-01-31T09:00:00", "2026-01-31T09:00:00Z"),
        (options.instant, "2026-01-31", "2026-01-31T09:00:00Z"),
        (options.instant, "tomorrow", "2026-01-31T09:00:00Z"),
        (options.instant, 1_700_000_000, "2026-01-31T09:00:00Z"),
        (
            options.instant,
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
            "2026-01-31T09:00:00Z",
        ),
        (options.retries, -1, "such as 5"),
        (options.retries, 1001, "such as 5"),
        (options.retries, True, "such as 5"),
        (options.retries, 1.5, "such as 5"),
        (options.retries, "5", "such as 5"),
        (options.timeout, 0, '"24h"'),
        (options.timeout, -1, '"24h"'),
        (options.timeout, "soon", '"24h"'),
        (options.expires, 0, '"24h"'),
        (options.expires, "2026-01-31T09:00:00", "2026-01-31T09:00:00Z"),
        (options.expires, datetime(2026, 1, 31), "datetime.now(UTC)"),  # noqa: DTZ001
    ],
)
def test_what_is_wrong_is_refused_with_an_example(
    check: Callable[[Any], Any], value: Any, example: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        check(value)
    assert example in str(caught.value)
    assert str(caught.value).isascii()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_error_names_the_option_as_the_user_gave_it() -> None:
    with pytest.raises(InvalidOption) as caught:
        options.instant("never", "start_at")
    assert caught.value.option == "start_at"
    assert str(caught.value).startswith("start_at: ")


@settings(deadline=None)
@given(st.text(max_size=600))
def test_names_and_keys_are_taken_as_they_are_or_refused(text: str) -> None:
    for check in (options.queue, options.task, options.key, options.owner, options.tenant):
        try:
            assert check(text) == text
        except InvalidOption:
            continue
