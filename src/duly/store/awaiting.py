"""Answers from one thread to another, or to a coroutine."""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable
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

    __slots__ = ("_error", "_result", "_set")

    def __init__(self) -> None:
        self._result: T | None = None
        self._error: BaseException | None = None
        self._set = threading.Lock()
        self._set.acquire()

    def set_running_or_notify_cancel(self) -> bool:
        """See Recipient."""
        return True

    def set_result(self, result: T, /) -> None:
        """Let the thread go on."""
        self._result = result
        self._set.release()

    def set_exception(self, exception: BaseException, /) -> None:
        """Let the thread's `wait` fail."""
        self._error = exception
        self._set.release()

    def wait(self) -> T:
        """Block until the outcome is there. Once only."""
        self._set.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Or the error, which holds this frame, would be held by it.
                del self
        return cast(T, self._result)


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
