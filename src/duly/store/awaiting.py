"""Answers from a thread to a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Recipient(Protocol):
    """Whoever waits for an outcome: a `concurrent.futures.Future`, or a coroutine."""

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the outcome is still wanted, now that the work begins."""
        ...

    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Awaited(Generic[T]):
    """What a coroutine awaits and another thread sets: a third of the work that it takes to chain
    a `concurrent.futures.Future` to one of the event loop."""

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
