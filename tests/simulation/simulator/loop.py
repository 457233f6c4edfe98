"""The event loop of a simulated world: nothing but its own callbacks, and no call of the system."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import count
from typing import Any

from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.loop import VirtualLoop

RESOLUTION = 1e-9


class WorldLoop(VirtualLoop):
    """A virtual loop that looks at no file and hears no other thread; thus it takes half the time.

    What is due at one moment happens in the order in which it was asked for.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.time = clock.monotonic  # type: ignore[method-assign]
        self._now: deque[_Handle] = deque()
        self._later: list[tuple[float, int, _Handle]] = []
        self._numbers = count()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        """See AbstractEventLoop.call_soon."""
        handle = _Handle(callback, args, context, 0.0)
        self._now.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        """See AbstractEventLoop.call_later."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        """See AbstractEventLoop.call_at."""
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._later, (when, next(self._numbers), handle))
        return handle

    def _run_once(self) -> None:
        """One turn: see BaseEventLoop, of which this is the part that a world needs."""
        later, now = self._later, self._now
        while later and later[0][2].is_cancelled:
            heapq.heappop(later)
        if not now:
            if not later:
                raise RuntimeError("the simulation stands still: nothing will ever happen in it")
            self._clock.pass_time(max(0.0, later[0][0] - self.time()))
        due = self.time() + RESOLUTION
        while later and later[0][0] < due:
            now.append(heapq.heappop(later)[2])
        for _ in range(len(now)):
            handle = now.popleft()
            if handle.is_cancelled:
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error})


class _Handle:
    """What asyncio asks of its Handle and its TimerHandle, and nothing else."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., Any], args: Any, context: Context | None, when: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when
