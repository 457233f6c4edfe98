"""How many jobs a worker may claim at a time: what it can start at once, or within milliseconds."""

from __future__ import annotations

import asyncio

from duly.runtime.slots import Slots

SOON = 0.02
"""Within how many seconds a job that is claimed beyond the free slots is to start."""
MOST = 500
DISTRUST = 5.0
"""For how many seconds nothing is claimed beyond the free slots after that was a mistake."""


class Pace:
    """Judges by how many jobs have ended in the time that the worker had any.

    A worker of ten slots whose jobs take microseconds would otherwise be at the store most of its
    time. Where a job stays in its slot for long, none is claimed that would have to wait for it.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._clock = asyncio.get_running_loop().time
        self._ended = 0
        self._busy = 0.0
        self._soon = 0
        self._trusted_from = 0.0

    def claimable(self) -> int:
        """How many to claim now."""
        slots = self._slots
        ended, busy = slots.ended - self._ended, slots.busy() - self._busy
        if ended >= slots.size and busy > 0:
            self._soon = min(MOST, int(ended * SOON / busy))
            self._ended += ended
            self._busy += busy
        if self._soon > 2 * slots.size and self._clock() >= self._trusted_from:
            return max(slots.free, self._soon)
        return slots.free

    def mistaken(self) -> None:
        """What was claimed beyond the free slots could not start soon."""
        self._soon = 0
        self._trusted_from = self._clock() + DISTRUST
