"""Time limits of the jobs under way in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.runtime.slot import Slot

REACTION = 2.0
"""How long code may take to end after its hard limit, in seconds."""


class TimeLimits:
    """Stops slots at their soft and hard limits; what does not react is handed to `give_up`.

    The soft limit of an isolated job is raised inside its own process.
    """

    def __init__(self, give_up: Callable[[Slot, float], None]) -> None:
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()

    def watch(self, slot: Slot) -> None:
        """Begin to count."""
        hard, soft = slot.job.timeout, slot.definition.execution.soft_timeout
        if hard is not None:
            slot.deadline = self._loop.time() + hard
            slot.timers.append(self._loop.call_at(slot.deadline, self._stop, slot, hard))
        if soft is not None:
            limit = soft.total_seconds()
            slot.timers.append(self._loop.call_later(limit, self._remind, slot, limit))

    def _remind(self, slot: Slot, limit: float) -> None:
        if slot.kill is not None:
            return
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
        slot.timers.append(self._loop.call_later(REACTION, self._give_up, slot, limit))
