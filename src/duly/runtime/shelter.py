"""Where a thread is not to be interrupted, and what to do when it was where it is of no use."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from duly.control import TimeLimitExceeded
from duly.store.interruptions import is_in_a_call

_CLEARING_AWAY = {"weakref", "_weakrefset"}


def is_sheltered(thread: int) -> bool:
    """Whether the thread is, at this moment, in a call to the store or in a finaliser.

    In the one an exception would do harm; what is raised in the other Python reports and ignores.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if (
            is_in_a_call(frame)
            or frame.f_code.co_name == "__del__"
            or frame.f_code is Swallowed.told.__code__
            or frame.f_globals.get("__name__") in _CLEARING_AWAY
        ):
            return True
        frame = frame.f_back
    return False


class Swallowed:
    """A hook for exceptions that Python ignores, as in a callback of the garbage collector: when
    a time limit is among them, `again` is called in the thread that it was meant for."""

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._others = self._first = sys.unraisablehook
        self._here = threading.local()

    def listen(self) -> None:
        """Be told from now on; whoever was told before still is, of all others, also if he passes
        on to us what he is told."""
        if sys.unraisablehook != self.told:
            self._others = sys.unraisablehook
            sys.unraisablehook = self.told

    def told(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Python's hook itself."""
        if unraisable.exc_type is TimeLimitExceeded:
            self._again()
        elif getattr(self._here, "tells_others", False):
            self._first(unraisable)
        else:
            self._here.tells_others = True
            try:
                self._others(unraisable)
            finally:
                self._here.tells_others = False
