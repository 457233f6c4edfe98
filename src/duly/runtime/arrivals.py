"""How often jobs come, and when it is worth to look for the next without being told."""

from __future__ import annotations

import math

WINDOW = 0.02
"""Over how many seconds the rate is judged."""
SHORTEST, LONGEST = 0.001, 0.01
"""Seconds between two looks: where jobs come less often, whoever submits one says so in time."""


class Arrivals:
    """Judges by what claims have brought.

    Notifications are coalesced, on PostgreSQL over some 10 ms. Where a job is to be expected
    sooner, a worker that looks again when there should be one has it in half the time.
    """

    def __init__(self, now: float) -> None:
        self._rate = 0.0
        self._looked = now

    def came(self, jobs: int, now: float) -> None:
        """A claim has brought so many."""
        elapsed = max(now - self._looked, 1e-6)
        self._looked = now
        if jobs:
            fresh = -math.expm1(-elapsed / WINDOW)
            self._rate = min(self._rate + fresh * (jobs / elapsed - self._rate), 1 / SHORTEST)
        else:
            # There was to be one.
            self._rate /= 2

    def next_in(self) -> float | None:
        """In how many seconds one more is to be expected; None if that is too long to look for."""
        return 1 / self._rate if self._rate * LONGEST >= 1 else None
