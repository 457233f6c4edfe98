"""Ids in the order of their making, as Duly's are, so that indexes grow at one end."""

from __future__ import annotations

import itertools
import os
import time
from uuid import UUID

_counter = itertools.count()
_process = int.from_bytes(os.urandom(6), "big")


def new_id() -> UUID:
    """48 bits of milliseconds, 32 of a counter, 48 that tell processes apart."""
    number = next(_counter) & 0xFFFFFFFF
    return UUID(int=(time.time_ns() // 1_000_000) << 80 | number << 48 | _process)
