"""The jobs under way in a worker, and the room for more."""

from __future__ import annotations

import asyncio
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
        if self._taken >= self.size:
            self._held.append(slot)
            return False
        self._taken += 1
        return True

    def next(self) -> Slot | None:
        """The next of those held if there is room for it now: it runs from now on."""
        if not self._held or self._taken >= self.size:
            return None
        self._taken += 1
        return self._held.popleft()

    def remove(self, slot: Slot) -> None:
        """It has ended, or is not to start any more."""
        del self._running[slot]
        if not slot.entered and slot in self._held:
            self._held.remove(slot)
        else:
            self._taken -= 1
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
        self._running.clear()
        self._held.clear()
        self._taken = 0

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
