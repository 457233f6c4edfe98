"""How many jobs a worker may claim at a time: what it can start at once, or within milliseconds."""

from __future__ import annotations

import asyncio

from duly.runtime.slots import Slots

SOON = 0.02
"""Within how many seconds a job that is claimed beyond the free slots is to start."""
MOST = 500


class Pace:
    """Judges by how many jobs have ended since the last claim.

    A worker of ten slots whose jobs take microseconds would otherwise be at the store most of its
    time. Where a job stays in its slot for long, none is claimed that would have to wait for it.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._ended = 0

    def claimable(self) -> int:
        """How many to claim now; ask once a claim."""
        now, ended = self._clock(), self._slots.ended
        passed, more = now - self._since, ended - self._ended
        self._since, self._ended = now, ended
        free, size = self._slots.free, self._slots.size
        soon = min(MOST, int(more * SOON / passed)) if passed > 0 else 0
        return max(free, soon) if soon > 2 * size else free
