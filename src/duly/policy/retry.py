"""Retry policies: pure functions of the attempt's number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from duly.errors import InvalidOption

if TYPE_CHECKING:
    from random import Random

LONGEST_DELAY = timedelta(days=365)

Backoff = Callable[[int], timedelta]
"""From the number of the attempt that failed (1 is the first) to the delay before the next."""


def _positive(option: str, value: timedelta) -> None:
    if value <= timedelta(0):
        raise InvalidOption(option, f"must be longer than nothing, such as '2s'; got {value!r}")


def exponential(
    base: timedelta = timedelta(seconds=2),
    factor: float = 2.0,
    cap: timedelta = timedelta(hours=1),
) -> Backoff:
    """base, base·factor, base·factor², ... never more than cap."""
    _positive("base", base)
    if not factor >= 1:
        raise InvalidOption("factor", f"must be at least 1, such as 2; got {factor!r}")

    def delay(attempt: int) -> timedelta:
        # In floats, so that a large attempt gives the cap instead of an overflow.
        try:
            seconds = base.total_seconds() * factor ** (attempt - 1)
        except OverflowError:
            return cap
        return min(cap, timedelta(seconds=min(seconds, cap.total_seconds())))

    return delay


def linear(step: timedelta = timedelta(seconds=10), cap: timedelta = timedelta(hours=1)) -> Backoff:
    """step, 2·step, 3·step, ... never more than cap."""
    _positive("step", step)
    return lambda attempt: min(cap, step * attempt)


def fixed(delay: timedelta) -> Backoff:
    """The same delay every time."""
    if delay < timedelta(0):
        raise InvalidOption("delay", f"must not be negative; got {delay!r}")
    return lambda attempt: delay


def listed(delays: Sequence[timedelta]) -> Backoff:
    """The delays in turn; the last one from then on."""
    if not delays:
        raise InvalidOption("backoff", "a list of delays needs one at least, such as ['10s', '1m']")
    fixed_delays = tuple(delays)
    return lambda attempt: fixed_delays[min(attempt, len(fixed_delays)) - 1]


DEFAULT_BACKOFF = exponential()


class RetryPolicy(msgspec.Struct, frozen=True):
    """Whether a failed attempt is followed by another, and when.

    An exception in `give_up_on` ends the job at once; when `retry_on` is given, one that is not
    in it does too; `give_up_on` wins. Jitter multiplies a delay by a factor of 0.5 to 1.5.
    """

    backoff: Backoff = DEFAULT_BACKOFF
    jitter: bool = True
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def gives_up_on(self, error: BaseException) -> bool:
        """Whether this error ends the job whatever attempts are left."""
        return isinstance(error, self.give_up_on) or not isinstance(error, self.retry_on)

    def delay_after(self, attempt: int, chance: Random) -> timedelta:
        """The delay after the failed attempt number `attempt`, never negative."""
        delay = self.backoff(attempt)
        if self.jitter:
            delay *= chance.uniform(0.5, 1.5)
        return min(max(delay, timedelta(0)), LONGEST_DELAY)
