"""Random cron expressions, drawn so that transitions are hit and every piece of syntax is used."""

from __future__ import annotations

import random
from datetime import datetime

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def random_expression(
    choose: random.Random, near: datetime | None = None, *, seconds: bool = False
) -> str:
    """An expression that can fire. With `near`, mostly at hours and on dates close to that.

    Every draw of the day fields matches some day of any month, in some year.
    """
    fields = [
        _sixty(choose),
        _hour(choose, near),
        _day_of_month(choose, near),
        _month(choose, near),
        _day_of_week(choose),
    ]
    if seconds:
        fields.insert(0, _sixty(choose))
    return " ".join(fields)


def _sixty(choose: random.Random) -> str:
    return choose.choice(
        [
            "0",
            "30",
            "*",
            str(choose.randrange(60)),
            f"*/{choose.choice([2, 5, 7, 15, 20, 30, 45])}",
            f"{choose.randrange(60)}/{choose.randrange(5, 40)}",
            ",".join(str(choose.randrange(60)) for _ in range(choose.randrange(2, 5))),
            f"{choose.randrange(60)}-{choose.randrange(60)}",
            f"{choose.randrange(60)}-{choose.randrange(60)}/{choose.randrange(1, 20)}",
        ]
    )


def _hour(choose: random.Random, near: datetime | None) -> str:
    def hour() -> int:
        if near is None or choose.random() < 0.2:
            return choose.randrange(24)
        return (near.hour + choose.choice([-2, -1, -1, 0, 0, 0, 1, 1, 2])) % 24

    return choose.choice(
        [
            "*",
            str(hour()),
            str(hour()),
            f"{hour()},{hour()}",
            f"{hour()}-{hour()}",
            f"{hour()}-{hour()}/{choose.randrange(1, 4)}",
            f"*/{choose.choice([2, 3, 5])}",
            f"{hour()}/{choose.randrange(1, 6)}",
        ]
    )


def _day_of_month(choose: random.Random, near: datetime | None) -> str:
    day = choose.randrange(1, 32)
    if near is not None and choose.random() < 0.6:
        day = near.day
    first, last = sorted((choose.randrange(1, 32), choose.randrange(1, 32)))
    return choose.choice(
        ["*"] * 9
        + [
            "?",
            f"{day},28" if day > 28 else str(day),
            f"{day},{choose.randrange(1, 29)}",
            f"{first}-{last},28",
            f"*/{choose.choice([2, 3, 5])}",
            "L",
            f"L-{choose.randrange(1, 8)},1",
            "LW",
            f"{min(day, 28)}W",
        ]
    )


def _month(choose: random.Random, near: datetime | None) -> str:
    months = [choose.randrange(1, 13), choose.randrange(1, 13)]
    if near is not None:
        months[0] = near.month
    return choose.choice(
        ["*"] * 9
        + [
            f"{months[0]}",
            f"{MONTHS[months[0] - 1]},{months[1]}",
            f"{months[0]}-{months[1]}",
            f"{MONTHS[months[1] - 1]}-{MONTHS[months[0] - 1]}/2".upper(),
            "*/3",
        ]
    )


def _day_of_week(choose: random.Random) -> str:
    first, last = choose.randrange(8), choose.randrange(8)
    name = choose.choice(WEEKDAYS)
    return choose.choice(
        ["*"] * 9
        + [
            "?",
            str(first),
            f"{name},{first}",
            f"{first}-{last}",
            f"{name}-{choose.choice(WEEKDAYS)}/2".upper(),
            "*/2",
            f"{first}/{choose.randrange(1, 4)}",
            f"{name}#{choose.randrange(1, 5)}",
            f"{name}L",
            f"{first}L,mon",
        ]
    )
