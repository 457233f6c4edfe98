"""Cron text: what is understood, what is refused and how."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest

from duly.errors import InvalidSchedule
from duly.policy.recurrence import Cron
from duly.policy.recurrence.bits import values_of
from duly.policy.recurrence.cron_parser import parse
from duly.policy.recurrence.wall_clock import Fold
from tests.support.brute_force_cron import BruteForceCron
from tests.unit.recurrence.expressions import random_expression


def days_in(expression: str, first: date, last: date) -> list[date]:
    """The dates on which a daily expression fires, up to the last one."""
    cron = Cron(expression)
    position = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(seconds=1)
    found = []
    while (fire := cron.next_after(position)) is not None and fire.date() <= last:
        found.append(fire.date())
        position = fire
    return found


def days_of_2027(expression: str) -> list[str]:
    return [f"{day:%m-%d}" for day in days_in(expression, date(2027, 1, 1), date(2027, 12, 31))]


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @ANNUALLY ", "0 0 1 1 *"),
        ("0 9 * JAN,mar-May Mon-FRI", "0 9 * 1,3-5 1-5"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 * * 5-7", "0 9 * * 5,6,0"),
        ("0 9 * * 0-7", "0 9 * * 0-6"),
        ("0 9 * * 7-7", "0 9 * * 0"),
        ("0 9 * * sat-sun", "0 9 * * 6,0"),
        ("0 9 * * 7-2", "0 9 * * 0-2"),
        ("0 9 * * 1/2", "0 9 * * 1,3,5,7"),
        ("0 9 * * 7/3", "0 9 * * 0,3,6"),
        ("0 9 * * fri-mon", "0 9 * * 5,6,0,1"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-4/2 * * *", "0 22,0,2,4 * * *"),
        ("50-10/10 0 * * *", "50,0,10 0 * * *"),
        ("0 0 1 nov-feb *", "0 0 1 11,12,1,2 *"),
        ("5/20 0 * * *", "5,25,45 0 * * *"),
        ("1-10/3 0 * * *", "1,4,7,10 0 * * *"),
        ("0  0\t1 * *", "0 0 1 * *"),
        ("0 0 0 1 * *", "0 0 1 * *"),
        ("0 9 * * 5#2,1L", "0 9 * * FRI#2,monl"),
    ],
)
def test_the_same_meaning(expression: str, same: str) -> None:
    assert parse(expression) == parse(same)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L 1-4 *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 0 L-3 1-4 *", ["01-28", "02-25", "03-28", "04-27"]),
        ("0 0 L-30 * *", ["01-01", "03-01", "05-01", "07-01", "08-01", "10-01", "12-01"]),
        # 15 May 2027 is a Saturday, 15 August a Sunday, 15 June a Tuesday.
        ("0 0 15W 5,6,8 *", ["05-14", "06-15", "08-16"]),
        # 1 May is a Saturday and 1 August a Sunday: the month is not left.
        ("0 0 1W 5,8 *", ["05-03", "08-02"]),
        # 31 October is a Sunday, 31 July a Saturday; the other months named have no 31st.
        ("0 0 31W 6,7,9,10 *", ["07-30", "10-29"]),
        ("0 0 LW 5,7,10 *", ["05-31", "07-30", "10-29"]),
        ("0 0 ? 1-3 fri#2", ["01-08", "02-12", "03-12"]),
        ("0 0 * * fri#5", ["01-29", "04-30", "07-30", "10-29", "12-31"]),
        ("0 0 * 1-3 5L", ["01-29", "02-26", "03-26"]),
        ("0 0 * 1 friL,mon#1", ["01-04", "01-29"]),
        ("0 0 1,L 2 *", ["02-01", "02-28"]),
        # Both day fields restricted: either will do.
        ("0 0 13 8 fri", ["08-06", "08-13", "08-20", "08-27"]),
        ("0 0 1 2 sunL", ["02-01", "02-28"]),
        # A field that starts with a star counts as unrestricted: both must fit.
        ("0 0 */10 1 mon", ["01-11"]),
        ("0 0 1-7 1 */6", ["01-02", "01-03"]),
        ("0 0 1 1 ?", ["01-01"]),
    ],
)
def test_days(expression: str, expected: list[str]) -> None:
    assert days_of_2027(expression) == expected


def test_days_against_brute_force() -> None:
    choose = Random("days")
    first, last = date(2023, 11, 1), date(2029, 4, 1)
    every_day = [first + timedelta(days=number) for number in range((last - first).days)]
    for _ in range(80):
        expression = _with_midnight(random_expression(choose))
        found = set(days_in(expression, every_day[0], every_day[-1]))
        oracle = BruteForceCron(expression)
        assert found == {day for day in every_day if oracle.matches_date(day)}, expression


def _with_midnight(expression: str) -> str:
    return " ".join(["0", "0", *expression.split()[2:]])


def test_times_of_day_against_brute_force() -> None:
    choose = Random("times")
    for _ in range(300):
        expression = random_expression(choose, seconds=True)
        parsed = parse(expression)
        oracle = BruteForceCron(expression)
        assert set(values_of(parsed.seconds)) == oracle.seconds
        assert set(values_of(parsed.minutes)) == oracle.minutes
        assert set(values_of(parsed.hours)) == oracle.hours
        assert set(values_of(parsed.months)) == oracle.months


@pytest.mark.parametrize(
    ("expression", "fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 2-4 * * *", True),
        ("* 30 2 * * *", True),
        ("*/15 2 * * *", False),
        ("30 */2 * * *", False),
        ("0,*/20 2 * * *", False),
        ("@daily", True),
        ("@hourly", False),
    ],
)
def test_fixed_time_is_told_by_stars_in_minute_and_hour(expression: str, fixed: bool) -> None:
    assert parse(expression).fixed_time is fixed


@pytest.mark.parametrize(
    ("expression", "field", "column", "words"),
    [
        ("61 * * * *", "minute", 1, "61 is not between 0 and 59"),
        ("0 24 * * *", "hour", 3, "24 is not between 0 and 23"),
        ("0  9   0 * *", "day-of-month", 8, "0 is not between 1 and 31"),
        ("0 9 32 * *", "day-of-month", 5, "32 is not between 1 and 31"),
        ("0 9 * 13 *", "month", 7, "13 is not between 1 and 12"),
        ("0 9 * juno *", "month", 7, "a name (jan to dec)"),
        ("0 9 * * 8", "day-of-week", 9, "8 is not between 0 and 7"),
        ("0 9 * * friday", "day-of-week", 9, "a name (sun to sat)"),
        ("60 0 9 * * *", "second", 1, "60 is not between 0 and 59"),
        ("*/0 * * * *", "minute", 1, "the step after '/'"),
        ("*/x * * * *", "minute", 1, "the step after '/'"),
        ("*/ * * * *", "minute", 1, "the step after '/'"),
        ("*/90 * * * *", "minute", 1, "every(minutes=90)"),
        ("0 */24 * * *", "hour", 3, "longer than the field"),
        ("1,,2 * * * *", "minute", 1, "missing beside a comma"),
        ("1- * * * *", "minute", 1, "is missing"),
        ("-1 * * * *", "minute", 1, "is missing"),
        ("1-2-3 * * * *", "minute", 1, "'2-3' is not a number"),
        ("1.5 * * * *", "minute", 1, "'1.5' is not a number"),
        ("١ * * * *", "minute", 1, "is not a number"),
        ("? * * * *", "minute", 1, "'?' is for the two day fields only"),
        ("0 9 28-3 * *", "day-of-month", 5, "write '28-31,1-3'"),
        ("0 9 L-31 * *", "day-of-month", 5, "L-1 to L-30"),
        ("0 9 W * *", "day-of-month", 5, "none of L, L-3, LW and 15W"),
        ("0 9 1-5W * *", "day-of-month", 5, "none of L, L-3, LW and 15W"),
        ("0 9 32W * *", "day-of-month", 5, "32 is not between 1 and 31"),
        ("0 9 * * L", "day-of-week", 9, "'friL' is the last Friday"),
        ("0 9 * * fri#6", "day-of-week", 9, "#1 to #5"),
        ("0 9 * * #2", "day-of-week", 9, "is missing"),
        ("0 9 * * mon-fri#2", "day-of-week", 9, "'mon-fri' is not"),
        ("0 9 * L *", "month", 7, "'l' is not"),
    ],
)
def test_errors_name_the_field_its_place_and_an_example(
    expression: str, field: str, column: int, words: str
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron(expression)
    message = str(refused.value)
    assert message.startswith(f"cron expression {expression!r}: {field} ")
    assert f"column {column})" in message
    assert words in message
    example = message.rpartition("a right example: ")[2].strip("'")
    Cron(example)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * 2027", "years is not supported"),
        ("@reboot", "no reboot"),
        ("@every 5m", "every(minutes=5)"),
        ("@fortnightly", "known are @hourly"),
        ("1," * 400 + "1 * * * *", "at most 600"),
        ("\x1b[31m * * * *", r"'\x1b[31m * * * *'"),
    ],
)
def test_errors_on_the_whole_text(expression: str, words: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron(expression)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *",
        "0 0 31 2,4 *",
        "0 0 31 feb,apr,jun,sep,nov ?",
        "0 0 31W 4 *",
        "0 0 30W 2 *",
        "0 0 L-29 2 *",
        "0 0 L-30 4 *",
        "0 0 30-31 2 *",
        "0 0 31 4 */2",
        "0 0 0 30 2 ?",
    ],
)
def test_an_expression_that_can_never_fire_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSchedule, match="can never fire: no day in "):
        Cron(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 29 2 *", "2028-02-29"),
        ("0 0 L-28 2 *", "2028-02-01"),
        # Rare, not impossible: 29 February on a weekend or a Monday, a fifth Sunday in February.
        ("0 0 29 2 */6", "2032-02-29"),
        ("0 0 */28 2 mon#5", "2044-02-29"),
        ("0 0 * 2 sun#5", "2032-02-29"),
        ("0 0 29W 2 *", "2028-02-29"),
        ("0 0 30 2 mon", "2027-02-01"),
    ],
)
def test_rare_dates_are_found(expression: str, expected: str) -> None:
    fire = Cron(expression).next_after(datetime(2027, 1, 1, tzinfo=UTC))
    assert fire is not None
    assert f"{fire:%Y-%m-%d}" == expected


def test_the_longest_wait_of_the_calendar() -> None:
    # 29 February on a Monday: 2072 is followed by 2112, as 2100 is no leap year.
    cron = Cron("0 0 */28 2 mon#5")
    assert cron.next_after(datetime(2072, 3, 1, tzinfo=UTC)) == datetime(2112, 2, 29, tzinfo=UTC)


def test_the_calendar_ends() -> None:
    cron = Cron("0 0 1 1 *", "Asia/Tokyo")
    assert cron.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert cron.last_at_or_before(datetime.min.replace(tzinfo=UTC)) is None
    last = cron.last_at_or_before(datetime.max.replace(tzinfo=UTC))
    assert last is not None
    assert cron.next_after(last) is None
    first = cron.next_after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert cron.last_at_or_before(first - timedelta(seconds=1)) is None


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Europe/Berlin"])
@pytest.mark.parametrize("fold", ["first", "second", "both"])
def test_no_instant_overflows(zone: str, fold: Fold) -> None:
    every_second = Cron("* * * * * *", zone, fold=fold)
    for year in (1, 2, 9998, 9999):
        for month in (1, 12):
            for day in (1, 31):
                instant = datetime(year, month, day, 12, tzinfo=UTC)
                upcoming = every_second.next_after(instant)
                past = every_second.last_at_or_before(instant)
                assert upcoming is None or upcoming > instant
                assert past is None or past <= instant
                every_second.count_between(instant - timedelta(hours=2), instant)
