"""Waiting for those whose submissions were stored together, so that they share the next commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sized

LONGEST = 0.002
"""Seconds to wait: threads that submit one job after another are back within that."""
SHORTEST_REST, LONGEST_REST = 0.05, 1.0
"""For how many seconds nobody is waited for after it was in vain, once and again and again."""


class Gathering:
    """Of one thread that stores what others put into a queue, under the lock of `filled`."""

    def __init__(
        self, filled: threading.Condition, queue: Sized, interrupted: Callable[[], bool]
    ) -> None:
        self._filled = filled
        self._queue = queue
        self._interrupted = interrupted
        self._returning = 0
        self._rest = SHORTEST_REST
        self._rests_until = 0.0
        self._enough = 1

    @property
    def expects_company(self) -> bool:
        """Whether several are being stored together, or are waited for."""
        return self._returning > 1

    @property
    def has_enough(self) -> bool:
        """Whether the thread is to go on with what is in the queue."""
        return len(self._queue) >= self._enough

    def stores(self, number: int) -> None:
        """So many are stored together now, and all of them are to be waited for."""
        self._returning = number

    def expects(self, number: int) -> None:
        """So many are to be waited for, those included that are in the queue already."""
        self._returning = number

    def gather(self) -> None:
        """Wait for the return of those who were stored together, but not for long, and not at once
        again where that was in vain: whoever submits now and then is not to be held up."""
        if self._returning > 1 and time.monotonic() >= self._rests_until:
            self._enough = self._returning
            came = self._filled.wait_for(self._may_go_on, LONGEST)
            self._enough = 1
            if came:
                self._rest = SHORTEST_REST
            else:
                self._rests_until = time.monotonic() + self._rest
                self._rest = min(2 * self._rest, LONGEST_REST)
        self._returning = 0

    def _may_go_on(self) -> bool:
        return self.has_enough or self._interrupted()
