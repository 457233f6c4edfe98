"""Job ids: UUIDv7, so that ids sort by creation."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_COUNTER_LIMIT = 1 << 26


class _Sequence:
    """UUIDv7 values that increase strictly within one process, also when the clock steps back.

    48 bits of milliseconds, then a 26-bit counter (seeded low, so that it has room to count
    within one millisecond), then 48 random bits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._counter = 0

    def take(self, count: int) -> list[UUID]:
        randomness = os.urandom(6 * count)
        made = []
        with self._lock:
            millisecond = time.time_ns() // 1_000_000
            if millisecond > self._millisecond:
                self._millisecond = millisecond
                self._counter = int.from_bytes(randomness[:2], "big")
            for position in range(count):
                self._counter += 1
                if self._counter >= _COUNTER_LIMIT:
                    self._millisecond += 1
                    self._counter = 0
                tail = int.from_bytes(randomness[6 * position : 6 * position + 6], "big")
                made.append(
                    UUID(
                        int=self._millisecond << 80
                        | _VERSION
                        | (self._counter >> 14) << 64
                        | _VARIANT
                        | (self._counter & 0x3FFF) << 48
                        | tail
                    )
                )
        return made


_sequence = _Sequence()


def _start_anew() -> None:
    # A forked child must not repeat its parent's ids, nor inherit a lock held by another thread.
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_start_anew)


def new_ids(count: int) -> list[UUID]:
    """`count` fresh ids in increasing order."""
    return _sequence.take(count)


def new_id() -> UUID:
    """One fresh id, greater than all this process has made before."""
    return _sequence.take(1)[0]
