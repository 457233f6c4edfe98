"""A worker inside the user's own program: no signal handlers, no import of the main script."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from datetime import timedelta
from uuid import UUID

from duly.config import Config
from duly.errors import DulyError, StoreError
from duly.model.identifiers import new_id
from duly.registry.task import Registry
from duly.runtime.attempt import Transaction
from duly.runtime.eventloop import new_event_loop
from duly.runtime.frames import framed, read_frame
from duly.runtime.isolation import Isolation
from duly.runtime.janitor import Janitor
from duly.runtime.keeper import ThreadKeeper
from duly.runtime.lease import LeaseBoard, LeaseClock
from duly.runtime.leaving import Ending
from duly.runtime.loop import Loop
from duly.runtime.machine import describe
from duly.runtime.messages import Charge, Farewell, Lost
from duly.runtime.reconciler import Reconciler
from duly.runtime.scheduler import Scheduler
from duly.runtime.settings import WorkerSettings
from duly.runtime.watchdog import Watchdog
from duly.runtime.worker import Worker
from duly.store.protocol import Store

REACTION = 1.0
FIRST_LEASE = 60.0
"""Seconds; until the process that keeps the lease has started: on a busy machine that takes longer
than a short lease, and the program's first job may hold the interpreter's lock meanwhile."""

logger = logging.getLogger("duly.worker")


class EmbeddedWorker:
    """One worker on an event loop in a thread of its own.

    Its lease is kept by a small process beside the program, so that code which holds the
    interpreter's lock does not lose it; in memory, and for short runs, by a thread.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        registry: Registry,
        transaction: Transaction,
        settings: WorkerSettings,
        version: str,
        guarded: bool,
        scheduling: bool,
    ) -> None:
        self._config = config
        self._store = store
        self._registry = registry
        self._transaction = transaction
        self._settings = settings
        self._version = version
        self._scheduling = scheduling
        self._guarded = guarded and config.url != "sqlite://"
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._stopping = False
        self._finished_before = 0
        self._thread = threading.Thread(target=self._run, name="duly-worker", daemon=True)

    def start(self) -> None:
        """Begin to work; returns when the worker is registered."""
        self._thread.start()
        self._started.result()

    def stop(self, grace: float) -> None:
        """Let jobs finish for up to `grace` seconds, release the rest, and end."""
        self._stopping = True
        worker, loop = self._worker, self._loop
        if worker is not None and loop is not None and self._thread.is_alive():
            try:
                asyncio.run_coroutine_threadsafe(worker.drain(grace), loop)
            except RuntimeError:
                logger.debug("the worker has ended by itself")
        self._thread.join()

    def wait_idle(self, timeout: float | None) -> bool:
        """Block until nothing runs and nothing is due; False when that takes too long."""
        worker, loop = self._worker, self._loop
        if worker is None or loop is None:
            return True
        waiting = asyncio.run_coroutine_threadsafe(worker.until_idle(), loop)
        try:
            waiting.result(timeout)
        except TimeoutError:
            waiting.cancel()
            return False
        return True

    @property
    def finished_jobs(self) -> int:
        """How many attempts have ended here."""
        return self._finished_before + (self._worker.finished_jobs if self._worker else 0)

    def _run(self) -> None:
        # Not asyncio.run: it would wait for tasks that do not heed their cancellation.
        loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve())
            loop.run_until_complete(_end_tasks())
            loop.close()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                logger.exception("the embedded worker has ended")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        loops = [
            Loop("watchdog", Watchdog(self._store, self._registry, self._settings.lease).tick),
            Loop("janitor", Janitor(self._store, self._config.retention()).tick),
        ]
        roles = [asyncio.create_task(each.run()) for each in loops]
        if self._scheduling:
            reconciler = Reconciler(self._store, self._registry.schedules)
            roles.append(asyncio.create_task(Loop("declarations", reconciler.tick).run()))
            roles.append(asyncio.create_task(Scheduler(self._store).run()))
        try:
            while not self._stopping:
                try:
                    ending = await self._work_once()
                except Exception:
                    if not self._started.done() or self._stopping:
                        raise
                    logger.exception("the worker failed and starts anew")
                    await asyncio.sleep(1.0)
                    continue
                if ending is Ending.DRAINED:
                    return
                logger.warning("the worker starts anew: %s", ending.value)
        finally:
            for role in roles:
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)

    async def _work_once(self) -> Ending:
        worker_id = new_id()
        board = LeaseBoard() if self._guarded else None
        lease = LeaseClock(self._settings.lease, board=board, first=self._first_lease)
        try:
            return await self._work_with(worker_id, lease, board)
        finally:
            if board is not None:
                board.close()

    async def _work_with(
        self, worker_id: UUID, lease: LeaseClock, board: LeaseBoard | None
    ) -> Ending:
        await self._register(worker_id)
        isolation = Isolation(None, self._settings.payload_limit)
        worker = Worker(
            worker_id,
            self._store,
            self._registry,
            self._transaction,
            self._settings,
            lease,
            isolation,
        )
        keeper: ThreadKeeper | _Guardian
        if board is not None:
            keeper = _Guardian(self._config, worker, self._settings.lease, board)
            await keeper.start()
        else:
            keeper = ThreadKeeper(self._store, worker_id, lease)
        self._worker = worker
        if not self._started.done():
            self._started.set_result(None)
        stopping = asyncio.create_task(worker.drain(0.0)) if self._stopping else None
        try:
            return await worker.run()
        finally:
            if stopping is not None:
                stopping.cancel()
            self._finished_before += worker.finished_jobs
            self._worker = None
            await asyncio.to_thread(keeper.close)
            try:
                await self._store.arun(
                    self._store.reap([worker_id], "the worker has ended", expired_only=False)
                )
            except DulyError as error:
                logger.warning("the worker could not sign off: %s", error)

    @property
    def _first_lease(self) -> float:
        length = self._settings.lease
        return max(length, FIRST_LEASE) if self._guarded else length

    async def _register(self, worker_id: UUID) -> None:
        record = describe(
            worker_id,
            os.getpid(),
            self._settings.queues,
            self._registry.names,
            self._version,
        )
        operation = self._store.register_worker(record, timedelta(seconds=self._first_lease))
        while True:
            try:
                return await self._store.arun(operation)
            except StoreError:
                if not self._started.done() or self._stopping:
                    raise
                await asyncio.sleep(1.0)


class _Guardian:
    """The process that keeps the lease of this one, started again if it dies."""

    def __init__(self, config: Config, worker: Worker, lease: float, board: LeaseBoard) -> None:
        self._config = config
        self._worker = worker
        self._lease = lease
        self._board = board
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._attending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Start it and tell it whose lease to keep."""
        reader = await self._hire()
        self._attending = asyncio.create_task(self._attend(reader))

    def close(self) -> None:
        """Say goodbye and wait for it to end."""
        if self._process is not None:
            self._loop.call_soon_threadsafe(self._say_goodbye)
            self._process.wait()

    def _say_goodbye(self) -> None:
        if self._attending is not None:
            self._attending.cancel()
        if self._writer is not None:
            self._writer.write(framed(Farewell()))
            self._writer.close()

    async def _hire(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.to_thread(
                _spawn_guardian, theirs.fileno(), self._board.descriptor
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(
            framed(
                Charge(
                    self._config.url,
                    self._config.schema,
                    self._worker.id,
                    os.getpid(),
                    self._lease,
                    self._board.descriptor,
                )
            )
        )
        return reader

    async def _attend(self, reader: asyncio.StreamReader) -> None:
        """Listen until it says that the lease is lost; put another in its place when it dies."""
        while await read_frame(reader, Lost) is None:
            logger.warning("the process that keeps the lease has died; starting another")
            if self._writer is not None:
                self._writer.close()
            if self._process is not None:
                await asyncio.to_thread(self._process.wait)
            reader = await self._hire()
        self._worker.lose_lease()


async def _end_tasks() -> None:
    """Cancel what is left on the loop; code that does not heed that is left behind."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=REACTION)


def _spawn_guardian(descriptor: int, board: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "duly.runtime.guardian", str(descriptor)],
        pass_fds=[descriptor, board],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
