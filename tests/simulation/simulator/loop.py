"""The event loop of a simulated world: nothing but its own callbacks, and no call of the system."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from itertools import count
from typing import Any

from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.loop import VirtualLoop

RESOLUTION = 1e-9


class WorldLoop(VirtualLoop):
    """A virtual loop that looks at no file and hears no other thread; thus it takes half the time.

    What is due at one moment happens in the order in which it was asked for.
    """

    _ready: deque[asyncio.Handle]

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See AbstractEventLoop.call_soon."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See AbstractEventLoop.call_later."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See AbstractEventLoop.call_at."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """One turn: see BaseEventLoop, of which this is the part that a world needs."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise RuntimeError("the simulation stands still: nothing will ever happen in it")
            self._clock.pass_time(max(0.0, timers[0][0] - self.time()))
        due = self.time() + RESOLUTION
        while timers and timers[0][0] < due:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
