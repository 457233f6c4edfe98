"""The jobs under way in a worker, and the room for more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

from duly.runtime.slot import Slot


class Slots:
    """As many as a worker may run at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._running: dict[tuple[UUID, int], Slot] = {}
        """By job and token: one that was taken from this worker by mistake may be given to it again
        while the code of the first attempt still runs."""
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Slot]:
        """Those that run now, whatever ends meanwhile."""
        return iter(list(self._running.values()))

    @property
    def free(self) -> int:
        """How many more may run."""
        return self._size - len(self._running)

    @property
    def attempts(self) -> set[tuple[UUID, int]]:
        """Job and token of each that runs."""
        return set(self._running)

    def add(self, slot: Slot) -> None:
        """It runs from now on."""
        self._running[slot.job.id, slot.job.token] = slot

    def remove(self, slot: Slot) -> None:
        """It has ended."""
        del self._running[slot.job.id, slot.job.token]
        self._freed.set()

    def find(self, attempt: tuple[UUID, int]) -> Slot | None:
        """The slot of this job and token, if it runs here."""
        return self._running.get(attempt)

    def abandon(self) -> None:
        """Stop them all; nobody waits for their outcomes any more."""
        for slot in self:
            slot.close()
            slot.interrupt()
        self._running.clear()

    def first_deadline(self) -> float | None:
        """The event loop's moment of the first hard time limit; None without one."""
        deadlines = (slot.deadline for slot in self._running.values())
        return min((each for each in deadlines if each is not None), default=None)

    def look_again(self) -> None:
        """Whoever waits for room is to look again."""
        self._freed.set()

    async def freed(self) -> None:
        """Wait until one ends, or until there is another reason to look again."""
        self._freed.clear()
        await self._freed.wait()
