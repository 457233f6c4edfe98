"""Job ids: UUIDv7, so that ids sort by creation."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

import msgspec

_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_COUNTER_LIMIT = 1 << 26
_RANDOM_BYTES = 6
_RANDOM_BUFFER = 512 * _RANDOM_BYTES

# msgspec makes a UUID several times faster than its own constructor does.
_BINARY_OF_16 = b"\xc4\x10"
_decode = msgspec.msgpack.Decoder(UUID).decode


def id_of(data: bytes) -> UUID:
    """The id in 16 bytes."""
    return _decode(_BINARY_OF_16 + data)


class _Sequence:
    """UUIDv7 values that increase strictly within one process, also when the clock steps back.

    48 bits of milliseconds, then a 26-bit counter (seeded low, so that it has room to count
    within one millisecond), then 48 random bits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._counter = 0
        self._randomness = b""
        self._used = 0

    def take(self) -> UUID:
        with self._lock:
            start = self._used
            if start == len(self._randomness):
                self._randomness = os.urandom(_RANDOM_BUFFER)
                start = 0
            self._used = start + _RANDOM_BYTES
            tail = int.from_bytes(self._randomness[start : self._used], "big")
            millisecond = time.time_ns() // 1_000_000
            if millisecond > self._millisecond:
                self._millisecond = millisecond
                self._counter = tail & 0xFFFF
            self._counter = counter = self._counter + 1
            if counter >= _COUNTER_LIMIT:
                self._millisecond += 1
                self._counter = counter = 0
            value = (
                self._millisecond << 80
                | _VERSION
                | (counter >> 14) << 64
                | _VARIANT
                | (counter & 0x3FFF) << 48
                | tail
            )
        return id_of(value.to_bytes(16, "big"))


_sequence = _Sequence()


def _start_anew() -> None:
    # A forked child must not repeat its parent's ids, nor inherit a lock held by another thread.
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_start_anew)


def new_id() -> UUID:
    """A fresh id, greater than all this process has made before."""
    return _sequence.take()
