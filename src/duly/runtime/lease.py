"""A worker's lease, as the worker's own clock sees it."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

from duly.clock import runtime_clock as clock

_MOMENT = struct.Struct("d")


class LeaseBoard:
    """A few bytes of memory, shared by the process that keeps a lease and the one that has it:
    the moment at which the last confirmed renewal was sent.

    Not a message: a worker whose event loop is held up by the code of its jobs reads messages
    late, and would take its own lease for lost.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _shared_memory() if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, _MOMENT.size)

    def renewed(self, sent_at: float) -> None:
        """Write that a renewal which was sent at this monotonic moment has been confirmed."""
        _MOMENT.pack_into(self._memory, 0, sent_at)

    def read(self) -> float:
        """The moment of the last renewal; 0 before the first."""
        (sent_at,) = _MOMENT.unpack_from(self._memory, 0)
        return float(sent_at)

    def close(self) -> None:
        """Hand it to no other process; the memory stays for as long as this object."""
        os.close(self.descriptor)


def _shared_memory() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("duly-lease")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _MOMENT.size)
    return descriptor


class LeaseClock:
    """Until when the worker may believe that its jobs are its own.

    The lease is counted from before the renewal was sent, so that it ends here before it ends
    in the database.
    """

    def __init__(
        self,
        length: float,
        sent_at: float | None = None,
        board: LeaseBoard | None = None,
        first: float | None = None,
    ) -> None:
        """`first` is the length of the lease until it is renewed for the first time."""
        self.length = length
        self._sent_at = clock.monotonic() if sent_at is None else sent_at
        self._ends_at = self._sent_at + (length if first is None else first)
        self._board = board

    def renewed(self, sent_at: float) -> None:
        """A renewal that was sent at this monotonic moment has been confirmed."""
        if sent_at > self._sent_at:
            self._sent_at = sent_at
            self._ends_at = sent_at + self.length

    def remaining(self) -> float:
        """Seconds left; not above zero when it has ended."""
        if self._board is not None:
            self.renewed(self._board.read())
        return self._ends_at - clock.monotonic()
