"""Time limits of the jobs under way in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.runtime.slot import Slot

REACTION = 2.0
"""How long code may take to end after its hard limit, in seconds."""

STARTING = 30.0
"""How long a process may take to start and to import the task, in seconds."""


class TimeLimits:
    """Stops slots at their soft and hard limits; what does not react is handed to `give_up`.

    The soft limit of an isolated job is raised inside its own process.
    """

    def __init__(self, give_up: Callable[[Slot, float], None]) -> None:
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()

    def watch(self, slot: Slot) -> None:
        """Begin to count; for code that runs in a process beside this one when it starts there.

        That has its time to start, too, before it is given up.
        """
        hard, soft = slot.job.timeout, slot.definition.execution.soft_timeout
        if hard is not None:
            self._count(slot, hard, STARTING if slot.elsewhere else 0.0)
            if slot.elsewhere:
                slot.code_starts = lambda: self._count(slot, hard, 0.0)
        if soft is not None and not slot.elsewhere:
            limit = soft.total_seconds()
            slot.timers += (self._loop.call_later(limit, self._remind, slot, limit),)

    def _count(self, slot: Slot, limit: float, extra: float) -> None:
        for timer in slot.timers:
            timer.cancel()
        slot.deadline = self._loop.time() + limit + extra
        slot.timers = (self._loop.call_at(slot.deadline, self._stop, slot, limit),)

    def _remind(self, slot: Slot, limit: float) -> None:
        slot.overdue = limit
        if slot.errand is not None:
            slot.errand.interrupt()
        elif slot.task is not None:
            slot.task.cancel()

    def _stop(self, slot: Slot, limit: float) -> None:
        slot.overdue = limit
        if slot.errand is not None:
            slot.errand.interrupt()
        else:
            slot.interrupt()
        slot.timers += (self._loop.call_later(REACTION, self._give_up, slot, limit),)
