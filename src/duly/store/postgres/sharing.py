"""Submissions that come at the same time are stored together: one statement, one commit."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from duly.errors import StoreError, StoreUnavailable
from duly.model.job import Draft, joined
from duly.model.query import Enqueued
from duly.store.awaiting import Awaited, Blocked, Recipient, Relay
from duly.store.gathering import Gathering
from duly.store.operation import Operation

MOST = 64
"""How many submissions are stored together."""

Enqueue = Callable[[Sequence[Draft]], Operation[Sequence[Enqueued]]]
Run = Callable[[Operation[Sequence[Enqueued]]], Sequence[Enqueued]]
RunAsync = Callable[[Operation[Sequence[Enqueued]]], Awaitable[Sequence[Enqueued]]]
Request = tuple[Operation[Sequence[Enqueued]], Recipient]


class SharedSubmissions:
    """Runs submissions that name their drafts.

    One that comes while there is no other goes its own way. Those that come meanwhile are taken by
    a thread, all that wait at a time, and waited for to come again. A caller's thread never stores
    for others: it may be interrupted at any point.
    """

    def __init__(self, enqueue: Enqueue, run: Run, arun: RunAsync) -> None:
        self._enqueue = enqueue
        self._run = run
        self._arun = arun
        self._alone = threading.Lock()
        self._waiting: deque[Request] = deque()
        # A lock that is no Python code is left whenever its block is, however that is interrupted.
        self._queueing = threading.Lock()
        self._filled = threading.Condition(self._queueing)
        self._storing = False
        """Whether the thread stores, or waits for those who are to return."""
        self._closing = False
        self._gathering = Gathering(self._filled, self._waiting, lambda: self._closing)
        self._relay = Relay()
        self._thread: threading.Thread | None = None

    def run(self, operation: Operation[Sequence[Enqueued]]) -> Sequence[Enqueued]:
        """Store what the operation submits, by itself or together with others."""
        if not self._storing and self._alone.acquire(blocking=False):
            try:
                return self._run(operation)
            finally:
                self._alone.release()
        blocked: Blocked[Sequence[Enqueued]] = Blocked()
        self._put(operation, blocked)
        return blocked.wait()

    async def arun(self, operation: Operation[Sequence[Enqueued]]) -> Sequence[Enqueued]:
        """The same without blocking the event loop."""
        if not self._storing and self._alone.acquire(blocking=False):
            try:
                return await self._arun(operation)
            finally:
                self._alone.release()
        awaited: Awaited[Sequence[Enqueued]] = Awaited()
        self._put(operation, awaited)
        return await awaited.future

    def close(self) -> None:
        """Store what waits, and end."""
        with self._filled:
            self._closing = True
            self._filled.notify()
        if self._thread is not None:
            self._thread.join()

    def _put(self, operation: Operation[Sequence[Enqueued]], recipient: Recipient) -> None:
        with self._queueing:
            if self._closing:
                raise StoreError("the store is being closed")
            if self._thread is None:
                name = "duly-submissions"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            self._waiting.append((operation, recipient))
            if self._gathering.has_enough:
                self._filled.notify()

    def _work(self) -> None:
        while True:
            with self._filled:
                self._gathering.gather()
                self._relay.finish()
                self._storing = False
                while not self._waiting and not self._closing:
                    self._filled.wait()
                if not self._waiting:
                    return
                self._storing = True
                batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            self._gathering.stores(len(batch))
            self._store(batch)

    def _store(self, batch: list[Request]) -> None:
        drafts = joined([operation.drafts for operation, _ in batch])
        try:
            answers = self._run(self._enqueue(drafts))
        except StoreUnavailable as error:
            for _, recipient in batch:
                recipient.set_exception(copy.copy(error))
        except Exception as error:
            self._store_apart(batch, error)
        else:
            outcomes: list[tuple[Recipient, Any, None]] = []
            start = 0
            for operation, recipient in batch:
                end = start + len(operation.drafts)
                outcomes.append((recipient, answers[start:end], None))
                start = end
            self._relay.begin(outcomes)

    def _store_apart(self, batch: list[Request], refusal: Exception) -> None:
        """One of them is refused: that is not the others' fault."""
        for operation, recipient in batch:
            error: BaseException = refusal
            if len(batch) > 1:
                try:
                    recipient.set_result(self._run(operation))
                    continue
                except BaseException as own:
                    error = own
            recipient.set_exception(error)
