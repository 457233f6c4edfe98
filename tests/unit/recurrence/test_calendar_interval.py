"""Calendar intervals: days, weeks, months and years on the clock of a zone."""

# ruff: noqa: DTZ001 - anchors are times on the wall.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly.errors import InvalidSchedule
from duly.policy.recurrence import CalendarInterval
from duly.policy.recurrence.rule import mask_by_walking
from duly.policy.recurrence.zones import load_zone


def local_fires(rule: CalendarInterval, after: datetime, number: int) -> list[str]:
    """The next fires as the zone's clocks show them; the other answers are checked on the way."""
    shown = []
    position = after
    for index in range(number):
        fire = rule.next_after(position)
        assert fire is not None
        assert fire > position
        assert rule.last_at_or_before(fire) == fire
        assert rule.last_at_or_before(fire - timedelta(seconds=1)) != fire
        assert rule.count_between(after, fire) == index + 1
        day = fire.replace(hour=0, minute=0, second=0)
        assert rule.mask_of_day(day) == mask_by_walking(rule, day) != 0
        shown.append(f"{fire.astimezone(load_zone(rule.zone)):%Y-%m-%d %H:%M}")
        position = fire
    return shown


def test_the_31st_falls_back_to_the_last_day_and_returns() -> None:
    rule = CalendarInterval(1, "month", datetime(2026, 1, 31, 9), "Europe/Berlin")
    assert local_fires(rule, datetime(2026, 1, 1, tzinfo=UTC), 4) == [
        "2026-01-31 09:00",
        "2026-02-28 09:00",
        "2026-03-31 09:00",
        "2026-04-30 09:00",
    ]


def test_short_months_can_be_skipped() -> None:
    rule = CalendarInterval(1, "month", datetime(2026, 1, 31, 9), short_month="skip")
    assert local_fires(rule, datetime(2026, 1, 31, 9, tzinfo=UTC), 3) == [
        "2026-03-31 09:00",
        "2026-05-31 09:00",
        "2026-07-31 09:00",
    ]
    assert rule.last_at_or_before(datetime(2026, 5, 1, tzinfo=UTC)) == datetime(
        2026, 3, 31, 9, tzinfo=UTC
    )


def test_quarters_and_leap_years() -> None:
    quarters = CalendarInterval(3, "month", datetime(2026, 2, 10, 6, 30), "Asia/Tokyo")
    assert local_fires(quarters, datetime(2025, 8, 1, tzinfo=UTC), 3) == [
        "2025-08-10 06:30",
        "2025-11-10 06:30",
        "2026-02-10 06:30",
    ]
    leap = CalendarInterval(1, "year", datetime(2024, 2, 29), short_month="skip")
    assert local_fires(leap, datetime(2024, 3, 1, tzinfo=UTC), 2) == [
        "2028-02-29 00:00",
        "2032-02-29 00:00",
    ]
    clamped = CalendarInterval(1, "year", datetime(2024, 2, 29))
    assert local_fires(clamped, datetime(2024, 3, 1, tzinfo=UTC), 1) == ["2025-02-28 00:00"]


def test_every_other_monday_keeps_its_hour_across_dst() -> None:
    rule = CalendarInterval(2, "week", datetime(2026, 3, 16, 9), "Europe/Berlin")
    assert local_fires(rule, datetime(2026, 3, 1, tzinfo=UTC), 3) == [
        "2026-03-02 09:00",
        "2026-03-16 09:00",
        "2026-03-30 09:00",
    ]


def test_gap_and_overlap_are_those_of_a_fixed_time() -> None:
    rule = CalendarInterval(1, "day", datetime(2027, 1, 1, 2, 30), "Europe/Berlin")
    assert rule.next_after(datetime(2027, 3, 28, tzinfo=UTC)) == datetime(
        2027, 3, 28, 1, tzinfo=UTC
    )
    overlap = datetime(2027, 10, 31, tzinfo=UTC)
    assert rule.count_between(overlap, overlap + timedelta(hours=12)) == 1
    both = CalendarInterval(1, "day", datetime(2027, 1, 1, 2, 30), "Europe/Berlin", fold="both")
    assert both.count_between(overlap, overlap + timedelta(hours=12)) == 2
    skip = CalendarInterval(1, "day", datetime(2027, 1, 1, 2, 30), "Europe/Berlin", gap="skip")
    assert skip.next_after(datetime(2027, 3, 28, tzinfo=UTC)) == datetime(
        2027, 3, 29, 0, 30, tzinfo=UTC
    )


def test_the_calendar_ends() -> None:
    rule = CalendarInterval(5000, "year", datetime(2024, 2, 29, 12))
    assert rule.next_after(datetime(2024, 3, 1, tzinfo=UTC)) == datetime(
        7024, 2, 29, 12, tzinfo=UTC
    )
    assert rule.next_after(datetime(7025, 1, 1, tzinfo=UTC)) is None
    assert rule.last_at_or_before(datetime(2024, 1, 1, tzinfo=UTC)) is None
    days = CalendarInterval(1, "day", datetime(2024, 1, 1))
    assert days.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert days.last_at_or_before(datetime.min.replace(tzinfo=UTC)) is None
    assert days.next_after(datetime.min.replace(tzinfo=UTC)) == datetime(2, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"every": 0}, "the least is 1"),
        ({"unit": "hour"}, "choose 'day'"),
        ({"anchor": datetime(2026, 1, 1, tzinfo=UTC)}, "has a time zone"),
        ({"anchor": datetime(9999, 1, 1)}, "are served"),
        ({"zone": "Berlin"}, "'Europe/Berlin'"),
        ({"short_month": "next"}, "choose 'last' or 'skip'"),
        ({"gap": "both"}, "choose 'next' or 'skip'"),
        ({"fold": "next"}, "choose 'first'"),
    ],
)
def test_wrong_values_are_refused(changed: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {"every": 1, "unit": "month", "anchor": datetime(2026, 1, 31)}
    CalendarInterval(**right)
    with pytest.raises(InvalidSchedule, match=words):
        CalendarInterval(**{**right, **changed})


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (CalendarInterval(1, "day", datetime(2026, 1, 5, 9)), "every day at 09:00 UTC"),
        (
            CalendarInterval(2, "week", datetime(2026, 1, 5, 9), "Europe/Berlin"),
            "every 2 weeks on Monday at 09:00 Europe/Berlin, counted from 2026-01-05",
        ),
        (
            CalendarInterval(1, "month", datetime(2026, 1, 31, 9, 0, 5)),
            "every month on the 31st (or the last day) at 09:00:05 UTC",
        ),
        (
            CalendarInterval(1, "year", datetime(2024, 2, 29), short_month="skip"),
            "every year on 29 February (where there is one) at 00:00 UTC",
        ),
    ],
)
def test_description(rule: CalendarInterval, text: str) -> None:
    assert rule.describe() == text
