"""Instants as the engine sees them: aware, UTC, on whole seconds, within the years it serves.

Every rule fires on whole seconds. So a fraction of a second in an instant that is asked about
makes no difference: what fires strictly after 12:00:00.7 is what fires strictly after 12:00:00,
and the same holds for "at or before".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.errors import InvalidSchedule

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
SECONDS_A_DAY = 86_400

# Fires lie in these years of their zone, one short of what datetime can hold on either side, so
# that neither a UTC offset nor a look at a neighbouring day can overflow.
EARLIEST_YEAR = 2
LATEST_YEAR = 9998
# No fire is at or beyond these two. Instants outside of them are taken to be these.
BEFORE_ALL = datetime(1, 1, 3, tzinfo=UTC)
AFTER_ALL = datetime(9999, 12, 29, tzinfo=UTC)


def in_utc(moment: datetime, what: str = "the datetime") -> datetime:
    """The same instant in UTC. A naive datetime is refused, and the message tells the remedy."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidSchedule(
            f"{what} {moment.isoformat()} has no time zone: say which one, for example "
            "datetime(2026, 3, 1, 9, 0, tzinfo=ZoneInfo('Europe/Berlin')) or tzinfo=UTC"
        )
    return moment.astimezone(UTC)


def whole_second(instant: datetime) -> datetime:
    """The instant in UTC, its fraction of a second dropped, from BEFORE_ALL to AFTER_ALL."""
    if instant.tzinfo is not None and not BEFORE_ALL < instant < AFTER_ALL:
        return BEFORE_ALL if instant <= BEFORE_ALL else AFTER_ALL
    if instant.tzinfo is not UTC:
        instant = in_utc(instant, "the instant")
    return instant.replace(microsecond=0) if instant.microsecond else instant


def seconds_between(start: datetime, end: datetime) -> int:
    """Whole seconds from start to end, both of one kind (both naive or both aware)."""
    distance = end - start
    return distance.days * SECONDS_A_DAY + distance.seconds
