"""Answers from one thread to another, or to a coroutine."""

from __future__ import annotations

import _thread
import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")

LONG = 0.002
"""Seconds that a relay does not take unless one of its threads was interrupted."""


class Recipient(Protocol):
    """Whoever waits for an outcome: a `concurrent.futures.Future`, a thread, or a coroutine."""

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the outcome is still wanted, now that the work begins."""
        ...

    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Blocked(Generic[T]):
    """What a thread waits for, and nothing else, and another sets: less work than with a
    `concurrent.futures.Future`."""

    __slots__ = ("_error", "_following", "_result", "_set", "goes_on", "woken")

    def __init__(self) -> None:
        self._result: T | None = None
        self._error: BaseException | None = None
        self._following: Blocked[Any] | None = None
        self.goes_on = False
        self.woken = False
        self._set = threading.Lock()
        self._set.acquire()

    def set_running_or_notify_cancel(self) -> bool:
        """See Recipient."""
        return True

    def set_result(self, result: T, /) -> None:
        """Let the thread go on."""
        self._result = result
        self.wake()

    def set_exception(self, exception: BaseException, /) -> None:
        """Let the thread's `wait` fail."""
        self._error = exception
        self.wake()

    def put_by(self, result: T | None, error: BaseException | None) -> None:
        """The outcome, for when somebody wakes the thread."""
        self._result = result
        self._error = error

    def be_followed(self, following: Blocked[Any]) -> None:
        """Have the thread wake another when it goes on, even if it does already."""
        self._following = following
        if self.goes_on:
            # It may have looked for the one that follows before.
            self._wake_following()

    def wake(self) -> None:
        """Let the thread go on. To do so more than once changes nothing."""
        try:  # noqa: SIM105 (a context takes longer than all else here)
            self._set.release()
        except RuntimeError:
            # Once more, and the lock is not held, or by a thread that has no more use for it.
            pass
        # Not before: an interrupt may come in between.
        self.woken = True

    def wait(self) -> T:
        """Block until the outcome is there. Once only."""
        self._set.acquire()
        self.goes_on = True
        self._wake_following()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Or the error, which holds this frame, would be held by it.
                del self
        return cast(T, self._result)

    def _wake_following(self) -> None:
        following = self._following
        if following is not None:
            following.wake()
            # Or whoever keeps one would keep all that came after it.
            self._following = None


class Relay:
    """Tells those who wait for what was done together. Threads wake one another in turn: woken all
    at once, they would fight for the interpreter's lock, which takes longer than what they do.

    A thread may be interrupted before it wakes the next, so whoever has begun a relay is to
    `finish` it before anything that may take long, and to `hurry` it now and then. One that is
    begun before the last has ended goes on where that ends.
    """

    def __init__(self) -> None:
        self._begun: deque[tuple[float, list[Blocked[Any]]]] = deque()

    def begin(self, outcomes: Iterable[tuple[Recipient, Any, BaseException | None]]) -> None:
        """Tell each its result, or its error; the coroutines of an event loop all at once."""
        threads: list[Blocked[Any]] = []
        loops: dict[asyncio.AbstractEventLoop, list[_Told]] = {}
        for recipient, result, error in outcomes:
            if isinstance(recipient, Blocked):
                recipient.put_by(result, error)
                if threads:
                    threads[-1].be_followed(recipient)
                threads.append(recipient)
            elif isinstance(recipient, Awaited):
                loops.setdefault(recipient.loop, []).append((recipient.future, result, error))
            elif error is not None:
                recipient.set_exception(error)
            else:
                recipient.set_result(result)
        for loop, told in loops.items():
            _tell(loop, told)
        if threads:
            self._go_on_with(threads)

    @property
    def finished(self) -> bool:
        """Whether everybody was woken."""
        begun = self._begun
        while begun and begun[0][1][-1].woken:
            begun.popleft()
        return not begun

    def finish(self) -> None:
        """Wake whoever is still asleep."""
        for _, threads in self._begun:
            if not threads[-1].woken:
                for blocked in threads:
                    blocked.wake()
        self._begun.clear()

    def hurry(self) -> None:
        """The same if it has taken too LONG."""
        if not self.finished and time.monotonic() - self._begun[0][0] > LONG:
            self.finish()

    def _go_on_with(self, threads: list[Blocked[Any]]) -> None:
        self.hurry()
        if self.finished:
            threads[0].wake()
        else:
            self._begun[-1][1][-1].be_followed(threads[0])
        self._begun.append((time.monotonic(), threads))


_Told = tuple[asyncio.Future[Any], Any, BaseException | None]
"""A future of an event loop with its result, or its error."""


class Awaited(Generic[T]):
    """What a coroutine awaits and another thread sets: less work than to chain a
    `concurrent.futures.Future` to one of the event loop."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        """See Recipient."""
        return not self.future.cancelled()

    def set_result(self, result: T, /) -> None:
        """Give the coroutine its answer."""
        _tell(self.loop, [(self.future, result, None)])

    def set_exception(self, exception: BaseException, /) -> None:
        """Let the coroutine's `await` fail."""
        _tell(self.loop, [(self.future, None, exception)])


def _tell(loop: asyncio.AbstractEventLoop, told: list[_Told]) -> None:
    # A loop that is closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_set, told)


def _set(told: list[_Told]) -> None:
    """On the event loop: give each future what it is told, unless somebody was quicker."""
    for future, result, error in told:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def fulfil(recipient: Recipient, work: Callable[..., Any], *arguments: Any) -> None:
    """Do the work in this thread, if it is still wanted, and tell what it came to."""
    if not recipient.set_running_or_notify_cancel():
        return
    try:
        result = work(*arguments)
    except BaseException as error:
        recipient.set_exception(error)
    else:
        recipient.set_result(result)


def in_a_thread(work: Callable[..., T], *arguments: Any) -> Blocked[T]:
    """Do the work in a thread of its own, while this one waits for something.

    A `threading.Thread` would let nobody else go on before it has begun, and then work for
    milliseconds. An executor of the standard library would take nothing once the main thread has
    ended.
    """
    blocked: Blocked[T] = Blocked()
    _thread.start_new_thread(fulfil, (blocked, work, *arguments))
    return blocked
