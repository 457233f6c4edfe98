"""Fixed rates."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InvalidSchedule
from duly.policy.recurrence import Every, every
from duly.policy.recurrence.rule import mask_by_walking

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
INSTANTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def test_the_grid_is_anchored_on_the_epoch() -> None:
    five = every(minutes=5)
    assert five.next_after(NOON) == NOON + timedelta(minutes=5)
    assert five.next_after(NOON + timedelta(minutes=7, seconds=3)) == NOON + timedelta(minutes=10)
    assert five.last_at_or_before(NOON) == NOON
    assert every(hours=7).next_after(NOON) == every(hours=7).next_after(NOON + timedelta(hours=0.5))


def test_an_anchor_moves_the_grid() -> None:
    rule = every(hours=1, anchor=NOON + timedelta(minutes=13, microseconds=5))
    assert rule.next_after(NOON) == NOON + timedelta(minutes=13)
    # The grid goes both ways from its anchor.
    assert rule.next_after(NOON - timedelta(hours=5)) == NOON - timedelta(hours=4, minutes=47)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(1, 200_000), INSTANTS, INSTANTS, st.integers(0, 400_000))
def test_the_answers_fit_together(
    seconds: int, anchor: datetime, instant: datetime, length: int
) -> None:
    rule = Every(seconds, anchor)
    upcoming, past = rule.next_after(instant), rule.last_at_or_before(instant)
    assert upcoming is not None
    assert past is not None
    assert past <= instant < upcoming
    assert upcoming - past == timedelta(seconds=seconds)
    until = instant + timedelta(seconds=length)
    count = rule.count_between(instant, until)
    assert upcoming + timedelta(seconds=seconds) * (count - 1) <= until
    assert upcoming + timedelta(seconds=seconds) * count > until.replace(microsecond=0)
    if seconds > 900:
        day = instant.replace(hour=0, minute=0, second=0, microsecond=0)
        assert rule.mask_of_day(day) == mask_by_walking(rule, day)


def test_a_year_of_seconds_is_counted_at_once() -> None:
    assert Every(1).count_between(NOON, NOON + timedelta(days=365)) == 31_536_000


def test_an_empty_or_backward_range_has_none() -> None:
    assert Every(1).count_between(NOON, NOON) == 0
    assert Every(1).count_between(NOON, NOON - timedelta(hours=1)) == 0


def test_the_grid_ends_with_the_calendar() -> None:
    assert Every(10**12, NOON).next_after(NOON) is None
    assert Every(10**12, NOON).last_at_or_before(NOON - timedelta(days=1)) is None
    assert Every(10**12, NOON).last_at_or_before(NOON) == NOON
    assert Every(1).next_after(datetime.max.replace(tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"seconds": 0}, "the shortest is 1 second"),
        ({"minutes": -5}, "the shortest is 1 second"),
        ({"seconds": 0.5}, "whole seconds"),
        ({"days": 1e12}, "not a length of time"),
        ({"minutes": math.nan}, "not a length of time"),
    ],
)
def test_wrong_intervals_are_refused(parts: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        every(**parts)  # type: ignore[arg-type]


def test_naive_datetimes_are_refused_with_the_remedy() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InvalidSchedule, match=r"has no time zone.*tzinfo=ZoneInfo"):
        Every(5, naive)
    with pytest.raises(InvalidSchedule, match=r"has no time zone.*tzinfo=ZoneInfo"):
        Every(5).next_after(naive)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (every(minutes=5), "every 5 minutes"),
        (every(hours=1), "every hour"),
        (every(days=7), "every week"),
        (every(minutes=90), "every 90 minutes"),
        (every(seconds=86_401), "every 86,401 seconds"),
        (every(hours=1, anchor=NOON), "every hour, counted from 2027-01-01 12:00:00 UTC"),
    ],
)
def test_description(rule: Every, text: str) -> None:
    assert rule.describe() == text
