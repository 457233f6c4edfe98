"""One way to be long-lived: tick, sleep until the next tick or a wake-up, stop when told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from duly.errors import StoreError
from duly.runtime.chance import chance

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

logger = logging.getLogger("duly.runtime")


class Loop:
    """Calls `tick` again and again; it answers after how many seconds it wants to be next.

    When the store cannot be reached the loop goes on, with growing pauses.
    """

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]]) -> None:
        self.name = name
        self._tick = tick
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self.slept_through = False
        """Whether nothing but the end of its pause brought about the current tick."""

    def wake(self) -> None:
        """Tick at once. Call it on the loop's own thread."""
        self._woken.set()

    def stop(self) -> None:
        """End after the current tick."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Tick until stopped."""
        while not self._stopping.is_set():
            pause = await self._tick_once()
            self.slept_through = False
            if self._stopping.is_set():
                return
            if pause > 0 and not self._woken.is_set():
                try:
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together
                    # with what it waits for.
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    self.slept_through = True
                    continue
            elif pause <= 0:
                await asyncio.sleep(0)
                self.slept_through = not self._woken.is_set()
            self._woken.clear()

    async def _tick_once(self) -> float:
        try:
            pause = await self._tick()
        except StoreError as error:
            self._failures += 1
            if self._failures == 1:
                logger.warning("%s: %s; trying again", self.name, error)
            return self._pause()
        except Exception:
            # A fault of ours, or an answer nobody thought of: not a reason to stop for good.
            self._failures += 1
            logger.exception("%s failed; trying again", self.name)
            return self._pause()
        if self._failures:
            logger.info("%s: the store is back after %d failures", self.name, self._failures)
            self._failures = 0
        return pause

    def _pause(self) -> float:
        longest = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(self._failures, 10))
        return chance.uniform(longest / 2, longest)
