"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies.

    The kernel goes by the thread that started this process; ours are started by threads that
    live as long as their process. Where the kernel cannot do it, the hang-up of the socket to
    the parent ends this process when it next looks.
    """
    parent = os.getppid()
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)


def leave_stopping_to_the_parent() -> None:
    """Do nothing on SIGTERM and SIGINT: the parent decides when this process ends.

    Service managers and terminals send them to every process at once. They are handled rather
    than ignored: what a task starts would inherit that, and could not be stopped.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
