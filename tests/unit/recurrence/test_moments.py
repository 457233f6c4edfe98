"""One-off moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.errors import InvalidSchedule
from duly.policy.recurrence import Moments

FIRST = datetime(2027, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_in_order_and_each_once() -> None:
    berlin = FIRST.astimezone(ZoneInfo("Europe/Berlin"))
    moments = Moments((FIRST + 2 * HOUR, FIRST, berlin))
    assert moments.at == (FIRST, FIRST + 2 * HOUR)
    assert moments.next_after(FIRST - HOUR) == FIRST
    assert moments.next_after(FIRST) == FIRST + 2 * HOUR
    assert moments.next_after(FIRST + 2 * HOUR) is None
    assert moments.last_at_or_before(FIRST) == FIRST
    assert moments.last_at_or_before(FIRST - HOUR) is None
    assert moments.count_between(FIRST - HOUR, FIRST + 2 * HOUR) == 2
    assert moments.count_between(FIRST, FIRST + 2 * HOUR) == 1
    assert moments.mask_of_day(FIRST.replace(hour=0)) == 1 << 9 * 3600 | 1 << 11 * 3600


def test_never_before_its_time() -> None:
    moments = Moments((FIRST + timedelta(microseconds=1),))
    assert moments.at == (FIRST + timedelta(seconds=1),)


def test_refused() -> None:
    with pytest.raises(InvalidSchedule, match="at least one"):
        Moments(())
    with pytest.raises(InvalidSchedule, match="has no time zone"):
        Moments((FIRST.replace(tzinfo=None),))
    with pytest.raises(InvalidSchedule, match="are served"):
        Moments((datetime(9999, 1, 1, tzinfo=UTC),))


def test_description() -> None:
    assert Moments((FIRST,)).describe() == "once, at 2027-03-01 09:00:00 UTC"
    assert Moments((FIRST, FIRST + HOUR)).describe() == (
        "at 2027-03-01 09:00:00 UTC and 2027-03-01 10:00:00 UTC"
    )
    many = Moments(tuple(FIRST + number * HOUR for number in range(9)))
    assert many.describe() == (
        "at 9 set times from 2027-03-01 09:00:00 UTC to 2027-03-01 17:00:00 UTC"
    )
