"""The event loop of a worker, whose timers are exact."""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from typing import Any

_TOO_LARGE_FOR_SELECT = 1024


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The one that the program's policy makes; where that is Python's own, its timers are not up to
    a millisecond late."""
    loop = asyncio.new_event_loop()
    if sys.platform == "linux" and type(loop) is asyncio.SelectorEventLoop:
        loop.close()
        return asyncio.SelectorEventLoop(_ExactSelector())
    return loop


if sys.platform == "linux":

    class _ExactSelector(selectors.EpollSelector):
        """Python rounds the time that epoll is to wait up to milliseconds. It does not for select,
        which can wait for epoll's own descriptor, if that is not too large a number."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
            """See selectors.BaseSelector."""
            if timeout is not None and timeout > 0 and self.fileno() < _TOO_LARGE_FOR_SELECT:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)
