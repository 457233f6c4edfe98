"""How long before they are due jobs are claimed, so that they start at the moment itself and not a
round trip later."""

from __future__ import annotations

from duly.runtime.slots import Slots

SHORTEST, LONGEST = 0.02, 0.1
"""Seconds."""
TIMES = 2
"""How many times as long as the slowest claim of late took."""
HALF_LIFE = 10.0
"""After how many seconds a slow claim counts for half."""
INSTANT = 0.001
"""In how many seconds a job that is to start has its slot for itself."""


class Ahead:
    """Judges by how long claims took: a disk that is quick as a rule may now and then take 50 ms
    for a sync, and whatever is due meanwhile would be late.

    Far ahead no more than half of the slots are filled, so that what is due at once has room.
    Moments are those of the event loop.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._slowest = 0.0
        self._at = 0.0

    def took(self, seconds: float, now: float) -> None:
        """A claim has taken so long."""
        self._slowest, self._at = max(min(seconds, LONGEST / TIMES), self._faded(now)), now

    def reach(self, now: float) -> tuple[float, int]:
        """How many seconds before they are due jobs may be claimed now, and how many."""
        far = TIMES * self._faded(now)
        room = self._slots.size // 2 - len(self._slots.early)
        if far > SHORTEST and room > 0:
            return far, min(room, self._slots.free)
        return SHORTEST, self._slots.free

    def begin(self, moment: float, now: float) -> float:
        """When to claim what is due at this moment: as soon as it is within reach."""
        far, early = TIMES * self._faded(now), self._slots.early
        latest = moment - SHORTEST
        if far <= SHORTEST or self._slots.size // 2 == 0:
            return latest
        if len(early) < self._slots.size // 2:
            return moment - far
        return min(latest, max(moment - far, min(early) + INSTANT))

    def _faded(self, now: float) -> float:
        elapsed = now - self._at
        return self._slowest * 0.5 ** (elapsed / HALF_LIFE) if self._slowest else 0.0
