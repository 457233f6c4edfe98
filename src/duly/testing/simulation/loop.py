"""An event loop in virtual time: what waits for a time has it at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar

from duly.testing.simulation.clock import VirtualClock

T = TypeVar("T")

NAP = 0.05
"""How long the world outside, if there is a way to it, may take to answer, in real seconds."""


class _Selector(selectors.DefaultSelector):
    """Lets virtual time pass instead of waiting, unless something real is under way."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.threads_at_work = 0
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.threads_at_work:
            return super().select(NAP)
        # The first of the files is the loop's own, for signals from other threads.
        if len(self.get_map()) > 1:
            ready = super().select(NAP)
            if ready:
                return ready
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing will ever happen in it")
        self._clock.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with the clock of a simulation.

    What is sent to the default executor, as by asyncio.to_thread, is done in the loop's own
    thread, so that a simulation takes the same course each time.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._waits = _Selector(clock)
        super().__init__(self._waits)

    def time(self) -> float:
        """See AbstractEventLoop.time."""
        return self._clock.monotonic()

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """See AbstractEventLoop.run_in_executor."""
        if executor is not None:
            return self._in_thread(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        try:
            with self.set_aside():
                result = func(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end, also from inside a coroutine of another loop, which stands still."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self.run_until_complete(main)
        finally:
            asyncio._set_running_loop(outer)

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """A block of blocking code: it may use event loops of its own, as it may in a thread."""
        asyncio._set_running_loop(None)
        try:
            yield
        finally:
            asyncio._set_running_loop(self)

    def _in_thread(
        self, executor: Executor, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        self._waits.threads_at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_is_back)
        return future

    def _thread_is_back(self, future: asyncio.Future[Any]) -> None:
        self._waits.threads_at_work -= 1
