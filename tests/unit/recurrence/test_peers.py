"""Against cronsim and croniter in UTC, where their meaning of an expression is the same as ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from croniter import croniter
from cronsim import CronSim

from duly.policy.recurrence import Cron
from tests.unit.recurrence.expressions import WEEKDAYS, random_expression


def _ranges_are_plain(expression: str) -> bool:
    """Whether all ranges are of numbers and rise: peers differ on others, or read them wrongly."""
    for term in expression.replace(" ", ",").split(","):
        start, dash, end = term.partition("/")[0].partition("-")
        if dash and not (start.isdigit() and end.isdigit() and int(start) < int(end)):
            return False
    return True


def _understood_by_cronsim(expression: str) -> bool:
    day_of_month, _, day_of_week = expression.split()[-3:]
    return (
        _ranges_are_plain(expression)
        and "?" not in expression
        and ("W" not in day_of_month or day_of_month == "LW")
        and not any(f"{name}L" in day_of_week for name in WEEKDAYS)
        and "7/" not in day_of_week
    )


def _understood_by_croniter(expression: str) -> bool:
    minute, hour, day_of_month, _, day_of_week = expression.split()
    # Steps count in the month and day fields, and lists with stars, are read in other ways.
    return (
        _ranges_are_plain(expression)
        and "/" not in (minute + hour).replace("*/", "")
        and "/" not in expression.split(maxsplit=2)[2]
        and all(day in "*" or day.isdigit() for day in (day_of_month, day_of_week))
    )


def test_cronsim_agrees() -> None:
    choose = Random("cronsim")
    compared = 0
    while compared < 250:
        expression = random_expression(choose, seconds=choose.random() < 0.3)
        if not _understood_by_cronsim(expression):
            continue
        compared += 1
        cron = Cron(expression)
        start = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(minutes=choose.randrange(2_000_000))
        peer = CronSim(expression, start)
        position = start
        for _ in range(12):
            fire = cron.next_after(position)
            assert fire == next(peer), expression
            assert fire is not None
            position = fire


def test_croniter_agrees() -> None:
    choose = Random("croniter")
    compared = 0
    while compared < 250:
        expression = random_expression(choose)
        if not _understood_by_croniter(expression):
            continue
        compared += 1
        cron = Cron(expression)
        start = datetime(2027, 1, 1, tzinfo=UTC) + timedelta(minutes=choose.randrange(2_000_000))
        forward, backward = croniter(expression, start), croniter(expression, start)
        position, past = start, start
        for _ in range(8):
            fire = cron.next_after(position)
            assert fire == forward.get_next(datetime), expression
            assert fire is not None
            position = fire
            before = cron.last_at_or_before(past - timedelta(seconds=1))
            assert before == backward.get_prev(datetime), expression
            assert before is not None
            past = before
