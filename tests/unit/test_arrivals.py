"""When a worker looks for the next job without being told."""

from __future__ import annotations

import pytest

from duly.runtime.arrivals import LONGEST, SHORTEST, Arrivals

BEGIN = 1000.0


def arrivals_at(rate: float, every: float, seconds: float = 1.0) -> tuple[Arrivals, float]:
    """Jobs have come at a steady rate, and were claimed every so many seconds; and the time."""
    arrivals = Arrivals(BEGIN)
    now = BEGIN
    for _ in range(int(seconds / every)):
        now += every
        arrivals.came(round(rate * every), now)
    return arrivals, now


def test_nothing_is_looked_for_at_first() -> None:
    assert Arrivals(BEGIN).next_in() is None


def test_a_job_after_a_rest_is_no_reason_to_look_for_more() -> None:
    arrivals = Arrivals(BEGIN)
    for number in range(1, 10):
        arrivals.came(1, BEGIN + number)
        assert arrivals.next_in() is None


@pytest.mark.parametrize("rate", [200, 500])
def test_the_next_look_is_when_one_more_should_have_come(rate: int) -> None:
    arrivals, _ = arrivals_at(rate, every=0.02)
    assert arrivals.next_in() == pytest.approx(1 / rate, rel=0.05)


def test_however_fast_they_come_there_is_time_between_two_looks() -> None:
    arrivals, _ = arrivals_at(50_000, every=0.001)
    assert arrivals.next_in() == pytest.approx(SHORTEST)


def test_where_they_come_seldom_nobody_looks() -> None:
    arrivals, _ = arrivals_at(0.9 / LONGEST, every=0.2)
    assert arrivals.next_in() is None


def test_when_no_more_come_it_soon_stops_looking() -> None:
    arrivals, now = arrivals_at(50_000, every=0.002)
    looks = 0
    while (pause := arrivals.next_in()) is not None:
        now += pause
        arrivals.came(0, now)
        looks += 1
    assert looks == 4
    assert now - BEGIN < 1.02


def test_two_looks_at_the_same_moment_count_as_one() -> None:
    arrivals = Arrivals(BEGIN)
    arrivals.came(5, BEGIN)
    arrivals.came(5, BEGIN)
    together = Arrivals(BEGIN)
    together.came(10, BEGIN)
    assert arrivals.next_in() == pytest.approx(together.next_in(), rel=0.01)
