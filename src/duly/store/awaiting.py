"""Answers from one thread to another, or to a coroutine."""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")


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

    __slots__ = ("_error", "_following", "_result", "_set", "woken")

    def __init__(self) -> None:
        self._result: T | None = None
        self._error: BaseException | None = None
        self._following: Blocked[Any] | None = None
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

    def put_by(
        self, result: T | None, error: BaseException | None, following: Blocked[Any] | None
    ) -> None:
        """The outcome, for when somebody wakes the thread; it then wakes the one that follows."""
        self._result = result
        self._error = error
        self._following = following

    def wake(self) -> None:
        """Let the thread go on. To do so more than once changes nothing."""
        # Once more, and the lock is not held, or by a thread that has no more use for it.
        with suppress(RuntimeError):
            self._set.release()
        # Not before: an interrupt may come in between.
        self.woken = True

    def wait(self) -> T:
        """Block until the outcome is there. Once only."""
        self._set.acquire()
        if self._following is not None:
            self._following.wake()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Or the error, which holds this frame, would be held by it.
                del self
        return cast(T, self._result)


class Relay:
    """Tells those who wait for what was done together. Threads wake one another in turn: woken all
    at once, they would fight for the interpreter's lock, which takes longer than what they do.

    A thread may be interrupted before it wakes the next, so whoever has begun a relay is to
    `finish` it after a moment.
    """

    def __init__(self) -> None:
        self._threads: list[Blocked[Any]] = []

    def begin(self, outcomes: Iterable[tuple[Recipient, Any, BaseException | None]]) -> None:
        """Tell each its result, or its error. An earlier relay is finished."""
        self.finish()
        following = None
        for recipient, result, error in reversed(list(outcomes)):
            if isinstance(recipient, Blocked):
                recipient.put_by(result, error, following)
                following = recipient
                self._threads.append(recipient)
            elif error is not None:
                recipient.set_exception(error)
            else:
                recipient.set_result(result)
        if following is not None:
            following.wake()

    @property
    def finished(self) -> bool:
        """Whether everybody was woken."""
        return not self._threads or self._threads[0].woken

    def finish(self) -> None:
        """Wake whoever is still asleep."""
        if not self.finished:
            for blocked in self._threads:
                blocked.wake()
        self._threads.clear()


class Awaited(Generic[T]):
    """What a coroutine awaits and another thread sets: less work than to chain a
    `concurrent.futures.Future` to one of the event loop."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        """See Recipient."""
        return not self.future.cancelled()

    def set_result(self, result: T, /) -> None:
        """Give the coroutine its answer."""
        self._tell(self.future.set_result, result)

    def set_exception(self, exception: BaseException, /) -> None:
        """Let the coroutine's `await` fail."""
        self._tell(self.future.set_exception, exception)

    def _tell(self, tell: Callable[[Any], None], outcome: Any) -> None:
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._unless_done, tell, outcome)

    def _unless_done(self, tell: Callable[[Any], None], outcome: Any) -> None:
        if not self.future.done():
            tell(outcome)


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
