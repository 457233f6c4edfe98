"""Job ids: UUIDv7, so that ids sort by creation."""

from __future__ import annotations

import os
import threading
import time
from struct import Struct
from uuid import UUID

import msgspec

_VERSION = 0x7 << 12
_VARIANT = 0b10 << 14
_COUNTER_LIMIT = 1 << 26
_RANDOM_BYTES = 6
_RANDOM_BUFFER = 512 * _RANDOM_BYTES

_parts = Struct(f">QH{_RANDOM_BYTES}s").pack
_tails = Struct(f"{_RANDOM_BYTES}s").iter_unpack

# msgspec makes a UUID several times faster than its own constructor does.
_BINARY_OF_16 = b"\xc4\x10"
_decode = msgspec.msgpack.Decoder(UUID).decode
_array = Struct(">BI").pack
_ARRAY_OF_32_BITS = 0xDD
_decode_array = msgspec.msgpack.Decoder(list[UUID]).decode


def id_of(data: bytes) -> UUID:
    """The id in 16 bytes."""
    return _decode(_BINARY_OF_16 + data)


def ids_of(data: list[bytes]) -> list[UUID]:
    """The ids in 16 bytes each."""
    return _decode_array(_BINARY_OF_16.join([_array(_ARRAY_OF_32_BITS, len(data)), *data]))


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

    def take(self) -> bytes:
        with self._lock:
            start = self._used
            if start == len(self._randomness):
                self._randomness = os.urandom(_RANDOM_BUFFER)
                start = 0
            self._used = start + _RANDOM_BYTES
            tail = self._randomness[start : self._used]
            number = self._number(1, tail)
            prefix = self._millisecond << 16 | _VERSION
        return _parts(prefix | number >> 14, _VARIANT | number & 0x3FFF, tail)

    def take_many(self, count: int) -> list[bytes]:
        randomness = os.urandom(count * _RANDOM_BYTES)
        with self._lock:
            first = self._number(count, randomness)
            prefix = self._millisecond << 16 | _VERSION
        return [
            _parts(prefix | number >> 14, _VARIANT | number & 0x3FFF, tail)
            for number, (tail,) in enumerate(_tails(randomness), first)
        ]

    def _number(self, count: int, seed: bytes) -> int:
        """The first of so many numbers of the current millisecond."""
        millisecond = time.time_ns() // 1_000_000
        if millisecond > self._millisecond:
            self._millisecond = millisecond
            self._counter = int.from_bytes(seed[:2], "big")
        first = self._counter + 1
        if first + count > _COUNTER_LIMIT:
            self._millisecond += 1
            first = 0
        self._counter = first + count - 1
        return first


_sequence = _Sequence()


def _start_anew() -> None:
    # A forked child must not repeat its parent's ids, nor inherit a lock held by another thread.
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_start_anew)


def new_id() -> UUID:
    """A fresh id, greater than all this process has made before."""
    return id_of(_sequence.take())


def new_binary_id() -> bytes:
    """A fresh id in 16 bytes."""
    return _sequence.take()


def new_binary_ids(count: int) -> list[bytes]:
    """So many fresh ids, in 16 bytes each and in order, greater than all this process has made
    before."""
    return [_sequence.take()] if count == 1 else _sequence.take_many(count)
