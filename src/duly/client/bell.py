"""A bell by which threads wake one that waits for a descriptor."""

from __future__ import annotations

import os
import select
from contextlib import suppress


class Bell:
    """Many may ring it; one waits for it, and closes it."""

    _descriptors: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._descriptors = self._heard, self._rung = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._rung, False)

    def ring(self) -> None:
        """Wake whoever waits, or is about to."""
        # It is full of what has been rung already.
        with suppress(BlockingIOError):
            os.write(self._rung, b"!")

    def wait(self, seconds: float, other: int | None = None) -> bool:
        """Block until it was rung, until the `other` descriptor is readable, or for that long; was
        it rung?"""
        readable = select.poll()
        readable.register(self._heard, select.POLLIN)
        if other is not None:
            readable.register(other, select.POLLIN)
        readable.poll(seconds * 1000)
        try:
            return bool(os.read(self._heard, 4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Nobody rings it any more."""
        descriptors, self._descriptors = self._descriptors, ()
        for each in descriptors:
            os.close(each)

    def __del__(self) -> None:
        self.close()
