"""SIGTERM to a process that runs jobs, while there are none yet or none any more."""

from __future__ import annotations

import os
import signal

LONG_RUNNING = ("up", "worker", "scheduler")


def leave_at_once_on_sigterm() -> None:
    """Until a supervisor takes over, and after it has ended, SIGTERM ends this process with 0.

    Not by an exception: the application may be in the middle of its import, and would be taken
    for broken.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
