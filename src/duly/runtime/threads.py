"""Threads for blocking tasks, with a way to raise in one that runs for too long."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from duly.control import TimeLimitExceeded


class Errand:
    """One call in one thread. What it returned or raised is handed to `deliver` in any case."""

    __slots__ = ("_closed", "_deliver", "_interrupted", "_lock", "_run", "_thread")

    def __init__(
        self, run: Callable[[], Any], deliver: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._run = run
        self._deliver = deliver
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False
        self._closed = False

    def interrupt(self) -> bool:
        """Raise TimeLimitExceeded in the call; False when it is not under way."""
        with self._lock:
            if self._thread is None:
                return False
            self._interrupted = True
            _raise_in(self._thread, TimeLimitExceeded)
            return True

    def perform(self) -> None:
        """Make the call and deliver. An interruption that comes too late is dropped."""
        with self._lock:
            self._thread = threading.get_ident()
        value: Any = None
        failure: BaseException | None = None
        try:
            value = copy_context().run(self._run)
        except BaseException as error:
            failure = error
        while not self._closed:
            try:
                self._close()
            except TimeLimitExceeded:
                continue
        self._deliver(value, failure)

    def _close(self) -> None:
        """From here on nothing can be raised in the thread."""
        with self._lock:
            if self._interrupted:
                _drop_what_is_to_be_raised()
            self._thread = None
            self._closed = True


class Crew:
    """Threads that take errands; they are made when needed, up to `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    def send(self, errand: Errand) -> None:
        """Have the errand done by the next free thread."""
        with self._lock:
            if self._idle == 0 and self._threads < self._size:
                self._start()
            else:
                self._idle = max(0, self._idle - 1)
        self._errands.put(errand)

    def replace_lost(self) -> None:
        """Count one thread less: it does not come back."""
        with self._lock:
            self._threads -= 1

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._errands.put(None)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="duly-task", daemon=True).start()

    def _work(self) -> None:
        while True:
            errand = self._errands.get()
            if errand is None:
                return
            # Of two interruptions the second may arrive between the call and its delivery; the
            # job is then given up by the hard limit that sent it.
            with suppress(TimeLimitExceeded):
                errand.perform()
            with self._lock:
                self._idle += 1


class _Nothing(BaseException):
    """Takes the place of what is not to be raised any more."""


def _drop_what_is_to_be_raised() -> None:
    """Nothing that others wanted to raise in this thread is raised after this.

    It is not taken back but replaced by something that is raised here and now: until an exception
    has arrived, CPython looks for it at every turn of its code, in all threads, and 3.11 stands
    still for ever when it is traced.
    """
    try:
        _raise_in(threading.get_ident(), _Nothing)
        while True:
            pass
    except _Nothing:
        return


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
