"""A thread is not interrupted inside a call to the store, but at the call's end.

In the middle of it a connection might be left in nobody's hands.
"""

from __future__ import annotations

import threading
from types import FrameType

put_off: dict[int, type[Exception]] = {}
"""What is to be raised in a thread, by its identity, as soon as it leaves the store."""


def raise_what_was_put_off() -> None:
    """At the end of a call to the store, if there is anything in `put_off`."""
    error = put_off.pop(threading.get_ident(), None)
    if error is not None:
        raise error


def is_in_a_call(frame: FrameType) -> bool:
    """Whether this is the frame of a call to the store."""
    return str(frame.f_globals.get("__name__")).startswith("duly.store")
