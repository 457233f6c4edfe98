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


class Ahead:
    """Judges by how long claims took: a disk that is quick as a rule may now and then take 50 ms
    for a sync, and whatever is due meanwhile would be late.

    Far ahead no more than half of the slots are filled, so that what is due at once has room.
    """

    def __init__(self, slots: Slots, now: float) -> None:
        self._slots = slots
        self._slowest = 0.0
        self._at = now

    def took(self, seconds: float, now: float) -> None:
        """A claim has taken so long."""
        faded = self._slowest * 0.5 ** ((now - self._at) / HALF_LIFE)
        self._slowest, self._at = max(seconds, faded), now

    def reach(self) -> tuple[float, int]:
        """How many seconds before they are due jobs may be claimed now, and how many."""
        far = min(TIMES * self._slowest, LONGEST)
        if far > SHORTEST:
            room = min(self._slots.size // 2 - self._slots.early, self._slots.free)
            if room > 0:
                return far, room
        return SHORTEST, self._slots.free
