"""Cron in plain English."""

from __future__ import annotations

from random import Random

import pytest

from duly.policy.recurrence import Cron
from tests.unit.recurrence.expressions import random_expression


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("30 2 * * *", "every day at 02:30 UTC"),
        ("* * * * *", "every minute, UTC"),
        ("*/15 * * * *", "every 15 minutes, UTC"),
        ("0,15,30,45 * * * *", "every 15 minutes, UTC"),
        ("@hourly", "every hour, UTC"),
        ("@weekly", "every Sunday at 00:00 UTC"),
        ("@monthly", "on the 1st of the month at 00:00 UTC"),
        ("@yearly", "on the 1st of the month in January at 00:00 UTC"),
        ("5 * * * *", "every hour at minute 5, UTC"),
        ("0 */2 * * *", "every 2 hours, UTC"),
        ("10,20 */6 * * *", "every 6 hours at minutes 10 and 20, UTC"),
        ("0 9,17 * * mon-fri", "every Monday through Friday at 09:00 and 17:00 UTC"),
        (
            "*/10 9-17 * * sat,sun",
            "every 10 minutes during hours 9 through 17 on Saturday and Sunday, UTC",
        ),
        ("7 9-17 * * *", "at minute 7 of hours 9 through 17, UTC"),
        ("*/10 * * * * *", "every 10 seconds, UTC"),
        ("30 * * * * *", "at second 30 of every minute, UTC"),
        ("15 30 2 * * *", "every day at 02:30:15 UTC"),
        ("* * 9 * * *", "every second during hour 9, UTC"),
        ("*/20 5 * * * *", "every 20 seconds of the minute, every hour at minute 5, UTC"),
        ("0 0 L * *", "on the last day of the month at 00:00 UTC"),
        (
            "0 0 L-2,LW,15W * *",
            "on the 3rd to last day, the last working day (Monday to Friday) and the working day "
            "(Monday to Friday) nearest to the 15th of the month at 00:00 UTC",
        ),
        ("0 0 * * fri#2,monL", "on the 2nd Friday and the last Monday of the month at 00:00 UTC"),
        ("0 0 13 * fri", "on the 13th of the month and every Friday at 00:00 UTC"),
        (
            "0 0 */2 * mon,tue",
            "on every 2nd day from the 1st of the month, if that is Monday or Tuesday, "
            "at 00:00 UTC",
        ),
        (
            "0 0 1 nov-feb *",
            "on the 1st of the month in January, February, November and December at 00:00 UTC",
        ),
    ],
)
def test_description(expression: str, text: str) -> None:
    assert Cron(expression).describe() == text


def test_the_zone_is_named() -> None:
    assert Cron("30 2 * * *", "Europe/Berlin").describe() == "every day at 02:30 Europe/Berlin"


def test_everything_can_be_described() -> None:
    choose = Random("descriptions")
    for number in range(500):
        text = Cron(random_expression(choose, seconds=number % 2 == 0)).describe()
        assert "  " not in text
        assert text.endswith("UTC")
