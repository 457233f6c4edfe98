"""Requests to cancel jobs that are under way."""

from __future__ import annotations

import asyncio
from uuid import UUID

from duly.runtime.loop import Loop
from duly.runtime.slots import Slots
from duly.store.protocol import Store

LOOK = 2.0
GAP = 0.25


class Cancellations:
    """Asks the store for them while anything runs, and stops what they name."""

    def __init__(self, worker_id: UUID, store: Store, slots: Slots) -> None:
        self._worker_id = worker_id
        self._store = store
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._looks = Loop("cancellations", self._look)
        self._looked_at = 0.0
        self._hinted: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Look now and then."""
        await self._looks.run()

    def hint(self) -> None:
        """Something has changed: look at once, or GAP after the last look."""
        if self._slots and self._hinted is None:
            self._hinted = self._loop.call_at(self._looked_at + GAP, self._looks.wake)

    async def _look(self) -> float:
        if self._hinted is not None:
            self._hinted.cancel()
            self._hinted = None
        if self._slots:
            self._looked_at = self._loop.time()
            for attempt in await self._store.arun(self._store.cancel_requests(self._worker_id)):
                slot = self._slots.find(attempt)
                if slot is not None and not slot.stopping:
                    slot.stopping = True
                    slot.interrupt()
        return LOOK
