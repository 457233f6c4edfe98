"""Threads for blocking tasks, with a way to raise in one that runs for too long."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from duly.control import TimeLimitExceeded
from duly.runtime.shelter import Swallowed, is_sheltered
from duly.store.interruptions import put_off

SHELTER = 15.0
"""For how long a call to the store may put an interruption off, in seconds."""

FIRST_NAP, LONGEST_NAP = 0.0005, 0.02

logger = logging.getLogger("duly.worker")


def _nobody() -> Errand | None:
    """Nothing follows."""
    return None


class Errand:
    """One call in one thread. What it returned or raised is handed to `deliver` in any case."""

    __slots__ = (
        "_closed",
        "_deliver",
        "_interrupted",
        "_lock",
        "_run",
        "_thread",
        "_too_late",
        "follower",
    )

    def __init__(
        self,
        run: Callable[[], Any],
        deliver: Callable[[Any, BaseException | None], None],
        follower: Callable[[], Errand | None] = _nobody,
    ) -> None:
        self._run = run
        self._deliver = deliver
        self.follower = follower
        """Asked when this one is done: what may be done in its place, by the same thread."""
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._too_late = False
        """Whether it was interrupted before it had a thread."""
        self._interrupted = False
        self._closed = False

    def interrupt(self) -> None:
        """Raise TimeLimitExceeded in the call, as soon as it is where that does no harm; before
        its start, instead of the call."""
        with self._lock:
            if self._thread is None:
                self._too_late = True
                return
            put_off[self._thread] = TimeLimitExceeded
        if not self._is_interrupted(force=False):
            self._interrupt_soon()

    def interrupt_again(self) -> None:
        """Called in the thread itself, where the interruption was of no use."""
        put_off[threading.get_ident()] = TimeLimitExceeded
        self._interrupt_soon()

    def _interrupt_soon(self) -> None:
        threading.Thread(target=self._keep_trying, name="duly-limit", daemon=True).start()

    def _keep_trying(self) -> None:
        deadline = time.monotonic() + SHELTER
        nap = FIRST_NAP
        while not self._is_interrupted(force=time.monotonic() > deadline):
            time.sleep(nap)
            nap = min(nap * 2, LONGEST_NAP)

    def _is_interrupted(self, force: bool) -> bool:
        """Interrupt it now if that does no harm; whether that is done, or no longer needed."""
        with self._lock:
            # Whoever has just been given the turn to run Python code keeps it for milliseconds
            # (`sys.getswitchinterval`): the other thread is raised in where it is seen.
            time.sleep(0)
            if self._thread not in put_off:
                return True
            if is_sheltered(self._thread) and not force:
                return False
            del put_off[self._thread]
            self._interrupted = True
            _interrupted[self._thread] = self
            _swallowed.listen()
            _raise_in(self._thread, TimeLimitExceeded)
            return True

    def perform(self) -> None:
        """Make the call and deliver. An interruption that comes too late is dropped."""
        value: Any = None
        failure: BaseException | None = None
        try:
            with self._lock:
                self._thread = threading.get_ident()
                if self._too_late:
                    raise TimeLimitExceeded
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
                _interrupted.pop(threading.get_ident(), None)
                _drop_what_is_to_be_raised()
            # Last: until then the interruption may be put off once more.
            put_off.pop(threading.get_ident(), None)
            self._thread = None
            self._closed = True


class Crew:
    """Threads that take errands; they are made when needed, up to `size`.

    One is called at a time, and calls the next before it does an errand if there are more: errands
    that wait for something are soon side by side, while those that take microseconds are done by a
    few threads, one after another. To wake a thread for each takes longer than many of them do.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._errands: deque[Errand] = deque()
        self._resting: list[threading.Lock] = []
        """Locked, one for each thread that waits to be called; who came last is called first."""
        self._called = False
        """Whether a thread is on its way that has not looked at the errands yet."""
        self._refused = False
        """Whether the system had no thread to give when one was last asked for."""
        self._closed = False
        self._threads = 0
        self._lock = threading.Lock()

    def send(self, errand: Errand) -> None:
        """Have the errand done by the next free thread; RuntimeError where there can be none."""
        self._errands.append(errand)
        if not self._called:
            try:
                self._call()
            except RuntimeError:
                # Unless somebody who was given up on has come back and taken it.
                with suppress(ValueError):
                    self._errands.remove(errand)
                    raise

    def replace_lost(self) -> None:
        """Count one thread less: it does not come back."""
        with self._lock:
            self._threads -= 1
        if self._errands:
            self._call()

    def close(self) -> None:
        """Let idle threads end."""
        self._closed = True
        with self._lock:
            resting, self._resting = self._resting, []
        for place in resting:
            place.release()

    def _call(self) -> None:
        """Have one more thread look at the errands, if there is one."""
        with self._lock:
            if self._called:
                return
            if self._resting:
                self._called = True
                self._resting.pop().release()
                return
            if self._threads >= self._size:
                return
            self._called = True
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="duly-task", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._called = False
                self._threads -= 1
                left = self._threads
            if not left:
                raise
            if not self._refused:
                self._refused = True
                logger.warning("%s: %d run blocking tasks for now", error, left)
            if self._errands and self._resting:
                # It came to rest meanwhile, and whoever sent something took us for on our way.
                self._call()
        else:
            self._refused = False

    def _work(self) -> None:
        place = threading.Lock()
        place.acquire()
        while True:
            self._called = False
            self._do_errands()
            with self._lock:
                # Whoever sends one from here on finds this thread at rest.
                if self._closed:
                    return
                if self._errands:
                    continue
                self._resting.append(place)
            place.acquire()

    def _do_errands(self) -> None:
        """All there are; if one takes long, others see to the rest."""
        errand: Errand | None = None
        while True:
            try:
                errand = self._errands.popleft()
            except IndexError:
                # Only now: what was sent came first.
                errand = errand and errand.follower()
                if errand is None:
                    return
            if self._errands and not self._called:
                self._call()
            # Of two interruptions the second may arrive between the call and its delivery; the
            # job is then given up by the hard limit that sent it.
            with suppress(TimeLimitExceeded):
                errand.perform()


_interrupted: dict[int, Errand] = {}
"""By the identity of their thread."""


def _interrupt_this_again() -> None:
    errand = _interrupted.get(threading.get_ident())
    if errand is not None:
        errand.interrupt_again()


_swallowed = Swallowed(_interrupt_this_again)


class _Nothing(BaseException):
    """Takes the place of what is not to be raised any more."""


def _drop_what_is_to_be_raised() -> None:
    """Nothing that others wanted to raise in this thread is raised after this.

    It is not taken back but replaced by something that is raised here and now: until an exception
    has arrived, CPython looks for it at every turn of its code, in all threads, and 3.11 stands
    still for ever when it is traced.
    """
    try:
        while True:
            _raise_in(threading.get_ident(), _Nothing)
    except _Nothing:
        return


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
