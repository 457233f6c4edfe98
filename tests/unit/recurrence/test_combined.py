"""Several rules as one: bounds, maximum, exclusions, jitter, JSON, and long ranges."""

from __future__ import annotations

import random
from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from duly.errors import InvalidSchedule
from duly.policy.recurrence import (
    CalendarInterval,
    Cron,
    Every,
    FireRange,
    Moments,
    Recurrence,
    Rule,
    every,
    load_zone,
)
from tests.unit.recurrence.expressions import random_expression

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
NINE = Cron("0 9 * * *")


def fires(recurrence: Recurrence, after: datetime, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    position = after
    while (fire := recurrence.next_after(position)) is not None and fire <= until:
        found.append(fire)
        position = fire
    return found


def test_rules_are_joined_and_shared_instants_are_one_fire() -> None:
    both = Recurrence((every(hours=6), Cron("0 */4 * * *")))
    hours = [fire.hour for fire in fires(both, NOON, NOON + DAY)]
    assert hours == [16, 18, 20, 0, 4, 6, 8, 12]
    assert both.count_between(NOON, NOON + DAY) == 8
    assert both.last_at_or_before(NOON + HOUR) == NOON


def test_start_and_end_are_included() -> None:
    bounded = Recurrence((every(hours=1),), start=NOON, end=NOON + 3 * HOUR)
    assert bounded.next_after(NOON - DAY) == NOON
    assert bounded.next_after(NOON + 2 * HOUR) == NOON + 3 * HOUR
    assert bounded.next_after(NOON + 3 * HOUR) is None
    assert bounded.last_at_or_before(NOON + DAY) == NOON + 3 * HOUR
    assert bounded.last_at_or_before(NOON - SECOND) is None
    assert bounded.count_between(NOON - DAY, NOON + DAY) == 4
    # A fraction of a second after a fire leaves that fire out at the start, and in at the end.
    half = timedelta(microseconds=500_000)
    moved = Recurrence((every(hours=1),), start=NOON + half, end=NOON + 3 * HOUR + half)
    assert moved.range_between(NOON - DAY, NOON + DAY) == FireRange(NOON + HOUR, NOON + 3 * HOUR, 3)


def test_a_maximum_counts_from_the_start() -> None:
    three = Recurrence((every(hours=1),), start=NOON, maximum_fires=3)
    assert fires(three, NOON - DAY, NOON + DAY) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert three.next_after(NOON + HOUR) == NOON + 2 * HOUR
    assert three.next_after(NOON + 2 * HOUR) is None
    assert three.last_at_or_before(NOON + 10 * DAY) == NOON + 2 * HOUR
    assert three.last_at_or_before(NOON + HOUR) == NOON + HOUR
    assert three.count_between(NOON, NOON + DAY) == 2
    assert three.range_between(NOON + 2 * HOUR, NOON + DAY) is None


def test_excluded_fires_do_not_count_against_the_maximum() -> None:
    rule = Recurrence(
        (NINE,), start=NOON, maximum_fires=3, excluded_dates=(date(2027, 1, 3), date(2027, 1, 4))
    )
    assert [fire.day for fire in fires(rule, NOON, NOON + 30 * DAY)] == [2, 5, 6]


def test_excluded_dates_are_dates_of_the_zone() -> None:
    hourly = Recurrence(
        (every(hours=1),), zone="America/New_York", excluded_dates=(date(2027, 1, 2),)
    )
    midnight = datetime(2027, 1, 2, 5, tzinfo=UTC)
    assert hourly.last_at_or_before(midnight) == midnight - HOUR
    assert hourly.next_after(midnight - HOUR) == midnight + DAY
    assert hourly.count_between(midnight - DAY, midnight + 2 * DAY - SECOND) == 47


def test_an_excluded_date_of_25_hours() -> None:
    rule = Recurrence(
        (every(minutes=30),), zone="Europe/Berlin", excluded_dates=(date(2027, 10, 31),)
    )
    start = datetime(2027, 10, 30, 22, tzinfo=UTC)
    assert rule.next_after(start - SECOND) == start + 25 * HOUR
    assert rule.count_between(start - SECOND, start + 26 * HOUR - SECOND) == 2


def test_excluded_rules() -> None:
    working = Recurrence((NINE,), excluded_rules=(Cron("* * * * sat,sun"),))
    assert [fire.day for fire in fires(working, NOON, NOON + 9 * DAY)] == [4, 5, 6, 7, 8]
    moments = Recurrence((NINE,), excluded_rules=(Moments((NOON + 21 * HOUR,)),))
    assert moments.next_after(NOON) == NOON + 45 * HOUR


def test_an_every_second_schedule_that_was_down_for_a_year() -> None:
    start, end = NOON, NOON + 365 * DAY
    for rule in (Every(1), Cron("* * * * * *", "Europe/Berlin")):
        seconds = Recurrence((rule,))
        assert seconds.range_between(start, end) == FireRange(start + SECOND, end, 31_536_000)
    nights_off = Recurrence(
        (Every(1), Every(7)),
        zone="Europe/Berlin",
        excluded_rules=(Cron("* * 1-4 * * *", "Europe/Berlin"),),
        excluded_dates=(date(2027, 5, 1), date(2027, 12, 24)),
    )
    # 363 days of 20 hours, and an hour more or less than that where DST begins or ends at night.
    expected = 363 * 20 * 3600
    found = nights_off.range_between(start, end)
    assert found is not None
    assert found.count == expected
    assert nights_off.next_after(datetime(2027, 4, 30, 22, tzinfo=UTC)) == datetime(
        2027, 5, 1, 22, tzinfo=UTC
    )
    assert nights_off.last_at_or_before(datetime(2027, 5, 1, 21, tzinfo=UTC)) == datetime(
        2027, 4, 30, 21, 59, 59, tzinfo=UTC
    )


def test_midnight_belongs_to_the_day_that_begins() -> None:
    evenings_off = Recurrence((Every(1),), excluded_rules=(Cron("* * 20-23 * * *"),))
    midnight = datetime(2027, 1, 2, tzinfo=UTC)
    assert evenings_off.next_after(midnight - 2 * HOUR) == midnight
    assert evenings_off.last_at_or_before(midnight - SECOND) == midnight - 4 * HOUR - SECOND
    assert evenings_off.count_between(midnight, midnight + DAY) == 20 * 3600
    assert evenings_off.count_between(midnight - SECOND, midnight + DAY - SECOND) == 20 * 3600


def test_26_hours_of_minutes() -> None:
    minutes = Recurrence((Cron("* * * * *", "America/New_York"),))
    assert minutes.count_between(NOON, NOON + 26 * HOUR) == 1560


def _random_rule(choose: random.Random) -> Rule:
    zone = choose.choice(["UTC", "Europe/Berlin", "Pacific/Chatham", "America/New_York"])
    near = datetime(2027, 3, 28, 1, tzinfo=UTC)
    kind = choose.randrange(10)
    if kind < 5:
        minutes = random_expression(choose, near)
        return Cron(minutes, zone, choose.choice([None, "skip", "next"]))
    if kind < 7:
        return Every(choose.choice([60, 90, 600, 3600, 86_400]))
    if kind < 8:
        return CalendarInterval(
            1, "day", near.replace(tzinfo=None) + choose.randrange(5) * HOUR, zone
        )
    return Moments(tuple(near + choose.randrange(-40, 40) * HOUR for _ in range(5)))


@pytest.mark.parametrize("seed", range(60))
def test_random_combinations_are_the_algebra_of_their_sets(seed: int) -> None:
    choose = random.Random(f"combined {seed}")
    start = datetime(2027, 3, 26, 21, 30, tzinfo=UTC)
    end = start + timedelta(hours=70)
    rules = tuple(_random_rule(choose) for _ in range(choose.randrange(1, 4)))
    excluded = tuple(_random_rule(choose) for _ in range(choose.randrange(3)))
    dates = (date(2027, 3, 28),) if choose.random() < 0.4 else ()

    def instants(rule: Rule) -> set[datetime]:
        return set(fires(Recurrence((rule,)), start - SECOND, end))

    zone = load_zone("Europe/Berlin")
    expected = sorted(
        fire
        for fire in set().union(*(instants(rule) for rule in rules))
        - set().union(*(instants(rule) for rule in excluded))
        if fire.astimezone(zone).date() not in dates
    )
    maximum = choose.choice([None, None, 1, 5, 100])
    combined = Recurrence(
        rules,
        start=start,
        end=end,
        maximum_fires=maximum,
        excluded_dates=dates,
        excluded_rules=excluded,
        zone="Europe/Berlin",
    )
    expected = expected[:maximum]
    assert combined.count_between(start - DAY, end + DAY) == len(expected)
    moments = [start + choose.randrange(70 * 3600) * SECOND for _ in range(25)]
    for instant in [
        start - DAY,
        end + DAY,
        *moments,
        *choose.sample(expected, min(5, len(expected))),
    ]:
        index = bisect_right(expected, instant)
        assert combined.next_after(instant) == (expected[index] if index < len(expected) else None)
        assert combined.last_at_or_before(instant) == (expected[index - 1] if index else None)
        later = choose.choice(moments)
        counted = bisect_right(expected, later) - index
        assert combined.count_between(instant, later) == max(0, counted)


def test_jitter_is_the_same_everywhere_and_spreads_evenly() -> None:
    jittered = Recurrence((NINE,), jitter_seconds=60)
    delays = [
        (jittered.due_at(f"schedule-{number}", NOON) - NOON).total_seconds()
        for number in range(1000)
    ]
    assert all(0 <= delay < 60 for delay in delays)
    assert 27 < sum(delays) / 1000 < 33
    assert jittered.due_at("a", NOON) == jittered.due_at("a", NOON)
    assert jittered.due_at("a", NOON) != jittered.due_at("a", NOON + HOUR)
    # A stored schedule must be due at the same time after an upgrade.
    assert jittered.due_at("a", NOON) == NOON + timedelta(microseconds=13_577_683)
    assert Recurrence((NINE,)).due_at("a", NOON) == NOON


@pytest.mark.parametrize(
    ("recurrence", "words"),
    [
        (Recurrence((NINE,), start=NOON, end=NOON + HOUR), "start, end and exclusions"),
        (Recurrence((NINE,), excluded_rules=(every(hours=1),)), "start, end and exclusions"),
        (Recurrence((Every(1),), excluded_rules=(Every(1),)), "start, end and exclusions"),
        # All of its times are in the gap, every year.
        (Recurrence((Cron("*/5 2 * 3 sunL", "Europe/Berlin"),)), "gap='skip'"),
        (Recurrence((Cron("30 2 * 3 sunL", "Europe/Berlin", gap="skip"),)), "gap='skip'"),
    ],
)
def test_a_schedule_that_never_fires_is_refused_on_demand(
    recurrence: Recurrence, words: str
) -> None:
    with pytest.raises(InvalidSchedule, match=r"can never fire") as refused:
        recurrence.check_fires()
    assert words in str(refused.value)


def test_a_schedule_that_fires_is_not_refused() -> None:
    Recurrence((Cron("30 2 * 3 sunL", "Europe/Berlin"),)).check_fires()
    Recurrence((Cron("0 0 29 2 *"),), start=NOON).check_fires()
    Recurrence((Moments((NOON,)),)).check_fires()
    Recurrence((NINE,), start=NOON - 3 * HOUR, end=NOON - 3 * HOUR).check_fires()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rules": ()}, "at least one"),
        ({"start": NOON.replace(tzinfo=None)}, "the start .* has no time zone"),
        ({"end": NOON.replace(tzinfo=None)}, "the end .* has no time zone"),
        ({"start": NOON, "end": NOON - HOUR}, "is before the start"),
        ({"maximum_fires": 0, "start": NOON}, "the least is 1"),
        ({"maximum_fires": 5}, "needs a start"),
        ({"jitter_seconds": -1}, "0 .none. or more"),
        ({"zone": "Nowhere"}, "unknown time zone"),
    ],
)
def test_wrong_values_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        Recurrence(**{"rules": (NINE,), **changed})


FULL = Recurrence(
    (
        Cron("30 2 * * mon-fri", "Europe/Berlin", gap="skip", fold="both"),
        every(minutes=5, anchor=NOON),
        CalendarInterval(3, "month", NOON.replace(tzinfo=None), "Asia/Tokyo", "skip"),
        Moments((NOON, NOON + DAY)),
    ),
    start=NOON,
    end=NOON + 400 * DAY,
    maximum_fires=1000,
    excluded_dates=(date(2027, 12, 25), date(2027, 1, 1)),
    excluded_rules=(Cron("* * 1 * *"),),
    jitter_seconds=30,
    zone="Europe/Berlin",
)


def test_json_and_back() -> None:
    encoded = msgspec.json.encode(FULL)
    assert msgspec.json.decode(encoded, type=Recurrence) == FULL
    kinds = [rule["kind"] for rule in msgspec.json.decode(encoded)["rules"]]
    assert kinds == ["cron", "every", "calendar", "moments"]
    rule = msgspec.json.decode(b'{"kind":"cron","expression":"@daily"}', type=Rule)
    assert rule == Cron("@daily")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"rules":[{"kind":"cron","expression":"61 * * * *"}]}', "61 is not between 0 and 59"),
        (b'{"rules":[{"kind":"cron","expression":"@daily","zone":"Berlin"}]}', "Europe/Berlin"),
        (b'{"rules":[{"kind":"weekly"}]}', "Invalid value 'weekly'"),
        (b'{"rules":[{"kind":"every","seconds":5,"second":6}]}', "unknown field `second`"),
        (b'{"rules":[{"kind":"cron","expression":"@daily","gap":"both"}]}', "Invalid enum value"),
        (b'{"rules":[]}', "at least one"),
    ],
)
def test_wrong_json_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.json.decode(text, type=Recurrence)


def test_values_are_frozen_and_hashable() -> None:
    assert hash(FULL) == hash(msgspec.json.decode(msgspec.json.encode(FULL), type=Recurrence))
    with pytest.raises(AttributeError):
        FULL.zone = "UTC"  # type: ignore[misc]


def test_description() -> None:
    described = Recurrence(
        (NINE, every(hours=6)),
        start=NOON,
        end=NOON + DAY,
        maximum_fires=3,
        excluded_dates=tuple(date(2027, 1, day) for day in range(1, 6)),
        excluded_rules=(Cron("0 0 1 * *"),),
        jitter_seconds=90,
        zone="Europe/Berlin",
    ).describe()
    assert described == (
        "every day at 09:00 UTC and every 6 hours; from 2027-01-01 13:00:00 Europe/Berlin; "
        "until 2027-01-02 13:00:00 Europe/Berlin; at most 3 times; not on 2027-01-01, 2027-01-02, "
        "2027-01-03 and 2 more dates (Europe/Berlin); not on the 1st of the month at 00:00 UTC; "
        "each up to 90 seconds later (jitter)"
    )
