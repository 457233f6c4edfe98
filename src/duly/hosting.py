"""Workers inside the user's own program: their start, their stop, and blocks around both."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from duly.config import Config
from duly.errors import ConfigurationError, InvalidOption
from duly.policy import options
from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration
from duly.registry.task import Registry
from duly.runtime.settings import WorkerSettings
from duly.version import VERSION

if TYPE_CHECKING:
    from duly.runtime.attempt import Transaction
    from duly.runtime.embedded import EmbeddedWorker
    from duly.store.protocol import Store

Host = TypeVar("Host")


class Hosting:
    """The embedded worker of one app, if it is running."""

    def __init__(
        self, config: Config, store: Store, registry: Registry, transaction: Transaction
    ) -> None:
        self._config = config
        self._store = store
        self._registry = registry
        self._transaction = transaction
        self._worker: EmbeddedWorker | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    def start(self, workers: int, queues: Iterable[str], scheduler: bool) -> None:
        """Start the worker; an app has one at most."""
        with self._lock:
            if self._worker is not None and self._process == os.getpid():
                raise ConfigurationError("this app is running already: stop() it first")
            embedded = self._make(workers, queues, guarded=True, scheduler=scheduler)
            embedded.start()
            self._worker, self._process = embedded, os.getpid()

    def stop(self, wait: bool) -> None:
        """Stop the worker, if there is one."""
        with self._lock:
            worker, self._worker = self._worker, None
            if worker is not None and self._process == os.getpid():
                worker.stop(self._config.grace if wait else 0.0)

    @contextmanager
    def running(
        self, host: Host, workers: int, queues: Iterable[str], scheduler: bool
    ) -> Iterator[Host]:
        """Start and stop around a block."""
        self.start(workers, queues, scheduler)
        try:
            yield host
        finally:
            self.stop(wait=True)

    @asynccontextmanager
    async def arunning(
        self, host: Host, workers: int, queues: Iterable[str], scheduler: bool
    ) -> AsyncIterator[Host]:
        """Start and stop around an asynchronous block."""
        import asyncio

        await asyncio.to_thread(self.start, workers, queues, scheduler)
        try:
            yield host
        finally:
            await asyncio.to_thread(self.stop, True)

    def run_until_idle(self, workers: int, queues: Iterable[str], timeout: Duration | None) -> int:
        """Run a worker until nothing is due, and answer how many attempts ended."""
        embedded = self._make(workers, queues, guarded=False, scheduler=False)
        embedded.start()
        seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        try:
            idle = embedded.wait_idle(seconds)
        finally:
            embedded.stop(self._config.grace if seconds is None else 0.0)
        if not idle:
            raise TimeoutError(f"jobs were still running or due after {seconds:g} s")
        return embedded.finished_jobs

    def _make(
        self, workers: int, queues: Iterable[str], guarded: bool, scheduler: bool
    ) -> EmbeddedWorker:
        from duly.runtime.embedded import EmbeddedWorker

        if not 1 <= workers <= 1000:
            raise InvalidOption("workers", f"must be from 1 to 1000; got {workers!r}")
        settings = WorkerSettings(
            queues=tuple(options.queue(queue) for queue in queues),
            concurrency=workers,
            lease=self._config.lease,
            grace=self._config.grace,
            fair_share=self._config.fair_share,
            payload_limit=self._config.payload_limit,
        )
        return EmbeddedWorker(
            self._config,
            self._store,
            self._registry,
            self._transaction,
            settings,
            VERSION,
            guarded,
            scheduler,
        )
