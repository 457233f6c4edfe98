"""The jobs under way in a worker, and the room for more."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from uuid import UUID

from duly.runtime.slot import Slot


class Slots:
    """As many as a worker may run at a time; what is claimed beyond that is held until one ends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ended = 0
        """How many have ended whose code had started."""
        self._running: dict[Slot, None] = {}
        self._taken = 0
        self._held: deque[Slot] = deque()
        self._lock = threading.Lock()
        """For what concerns places: a thread may pass one on."""
        self._kept_back = False
        self._clock = asyncio.get_running_loop().time
        self._filled_at = 0.0
        self._busy = 0.0
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Slot]:
        """Those that run or are held now, whatever ends meanwhile."""
        return iter(list(self._running))

    @property
    def free(self) -> int:
        """How many more may run."""
        return self.size - self._taken

    @property
    def early(self) -> list[float]:
        """The moments of those that have a place before theirs has come."""
        return [
            slot.moment for slot in self._running if slot.moment is not None and not slot.entered
        ]

    def busy(self) -> float:
        """For how many seconds in all there has been any."""
        return self._busy + (self._clock() - self._filled_at if self._running else 0.0)

    @property
    def attempts(self) -> set[tuple[UUID, int]]:
        """Job and token of each that runs or is held. A job that was taken from this worker by
        mistake may be given to it again while the code of the first attempt still runs."""
        return {(slot.job.id, slot.job.token) for slot in self._running}

    @property
    def holds_any(self) -> bool:
        """Whether any waits for one to end."""
        return bool(self._held)

    @property
    def held(self) -> list[Slot]:
        """Those that wait for one to end, first come first."""
        return list(self._held)

    def add(self, slot: Slot) -> bool:
        """It runs from now on; False when there is no room, and it is held."""
        if not self._running:
            self._filled_at = self._clock()
        self._running[slot] = None
        with self._lock:
            if self._taken >= self.size:
                self._held.append(slot)
                return False
            self._taken += 1
            slot.has_place = True
            return True

    def next(self) -> Slot | None:
        """The next of those held if there is room for it now: it runs from now on."""
        with self._lock:
            if not self._held or self._kept_back or self._taken >= self.size:
                return None
            self._taken += 1
            slot = self._held.popleft()
            slot.has_place = True
            return slot

    def follower(self, ended: Slot) -> Slot | None:
        """The next of those held, if it is a plain call: it runs from now on, in the place of one
        whose code has ended. May be asked in any thread."""
        with self._lock:
            if not self._held or self._kept_back or not ended.has_place:
                return None
            slot = self._held[0]
            if not slot.is_plain_call:
                return None
            self._held.popleft()
            ended.has_place = False
            slot.has_place = slot.entered = True
            return slot

    def keep_back(self) -> None:
        """None of those held starts any more."""
        with self._lock:
            self._kept_back = True

    def withdraw(self, slot: Slot) -> bool:
        """It is not to start any more; False if it has."""
        with self._lock:
            if not slot.entered and not slot.has_place:
                self._held.remove(slot)
            return not slot.entered

    def remove(self, slot: Slot) -> None:
        """It has ended, or is not to start any more."""
        del self._running[slot]
        with self._lock:
            if slot.has_place:
                self._taken -= 1
                slot.has_place = False
            elif not slot.entered and slot in self._held:
                self._held.remove(slot)
        self.ended += slot.entered
        if not self._running:
            self._busy += self._clock() - self._filled_at
        self._freed.set()

    def find(self, attempt: tuple[UUID, int]) -> Slot | None:
        """The slot of this job and token, if it runs or is held here."""
        return next(
            (slot for slot in self._running if (slot.job.id, slot.job.token) == attempt), None
        )

    def abandon(self) -> None:
        """Stop them all; nobody waits for their outcomes any more."""
        for slot in self:
            slot.close()
            slot.interrupt()
        with self._lock:
            self._held.clear()
            self._taken = 0
        self._running.clear()

    def first_deadline(self) -> float | None:
        """The event loop's moment of the first hard time limit; None without one."""
        deadlines = (slot.deadline for slot in self._running)
        return min((each for each in deadlines if each is not None), default=None)

    def look_again(self) -> None:
        """Whoever waits for room is to look again."""
        self._freed.set()

    async def freed(self) -> None:
        """Wait until one ends, or until there is another reason to look again."""
        self._freed.clear()
        await self._freed.wait()
