"""Whether so many claim at a time that they should leave alone what others have touched."""

from __future__ import annotations

import time

MUCH = 1_000
TIMES = 6
"""What a claim reads, at most, where few others claim: so much, and so many times its jobs."""
AT_FIRST, PATIENCE = 2.0, 5.0
"""For how many seconds a crowd is expected, after a rest and when one was seen. What was only
touched is left alone for no longer."""


class Crowd:
    """Expects one whenever there was nothing to do: all are woken at once. Then it judges by what
    claims read that take everything: in a crowd they walk over all that others took since they
    began.

    A job that was locked and let go, or whose change was undone, waits meanwhile, but not if it is
    the only one left.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        """Until when one is expected; if that is None, from the next claim on."""

    def is_expected(self) -> bool:
        """Whether a claim is to leave alone what others have touched."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + AT_FIRST
        return now < self._until

    def claimed(self, read: int, jobs: int, everything: bool) -> None:
        """A claim read so much for so many jobs, and took everything or only what was untouched."""
        if not jobs:
            self._until = None if everything else 0.0
        elif everything and read > MUCH + TIMES * jobs:
            self._until = time.monotonic() + PATIENCE

    def nothing_is_due(self) -> None:
        """Somebody has looked: whatever comes next wakes everybody."""
        self._until = None
