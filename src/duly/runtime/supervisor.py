"""The supervisor: starts worker processes, keeps their leases, notices their deaths."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from duly.clock import runtime_clock as clock
from duly.errors import StoreError
from duly.model.identifiers import new_id
from duly.registry.task import Registry
from duly.runtime.frames import framed, read_frame
from duly.runtime.hooks import call_hooks_of_reaped
from duly.runtime.janitor import Janitor
from duly.runtime.keeper import LeaseKeeper
from duly.runtime.lease import LeaseBoard
from duly.runtime.loop import Loop
from duly.runtime.machine import cause_of_death, describe, is_stopped
from duly.runtime.messages import Drain, Lost, Orders, Pulse
from duly.runtime.processes import Companion, spawn
from duly.runtime.reconciler import Reconciler
from duly.runtime.scheduler import Scheduler
from duly.runtime.settings import WorkerSettings
from duly.runtime.watchdog import Watchdog
from duly.store.protocol import Store

HEALTH_CHECK = 1.0
DEADLINE_MARGIN = 5.0
SHORT_LIFE = 5.0
LONGEST_RESTART_PAUSE = 10.0
LONGEST_SILENCE = 600.0
LONGEST_START = 2.0
"""For how many seconds others wait for a process that starts."""

logger = logging.getLogger("duly.supervisor")


class _Child:
    """One worker process."""

    def __init__(self, worker: UUID, companion: Companion, board: LeaseBoard) -> None:
        self.worker = worker
        self.board = board
        self.process = companion.process
        self.reader = companion.reader
        self.writer = companion.writer
        self.started_at = clock.monotonic()
        self.registered_at = self.started_at
        self.looks_stopped = 0
        """At how many looks in a row it was found stopped."""
        self.looks_silent = 0
        """At how many looks in a row nothing had come from it."""
        self.is_up = asyncio.Event()
        """Set when the process has said something, or has ended."""
        self.deadline: float | None = None
        self.killed_for: str | None = None

    def tell(self, message: object) -> None:
        """Send a message; a process that is gone is noticed elsewhere."""
        if not self.writer.is_closing():
            self.writer.write(framed(message))

    def kill(self, cause: str) -> None:
        """End the process now."""
        if self.process.returncode is None and self.killed_for is None:
            logger.error("worker process %d is killed: %s", self.process.pid, cause)
            self.killed_for = cause
            self.process.kill()


async def _spawned(worker: UUID) -> _Child:
    board = LeaseBoard()
    try:
        return _Child(worker, await spawn("duly.runtime.child", board.descriptor), board)
    except BaseException:
        board.close()
        raise


class Supervisor:
    """Runs `processes` worker processes of the app that `target` names, and takes part in
    `scheduling` recurring work unless told otherwise. Without processes it only schedules, watches
    over the workers of other nodes and keeps house. With a `url` the app works on that database.

    As many processes as there are processors start at a time: to import what a worker needs takes
    longer than thousands of jobs, which those that are up already run meanwhile.
    """

    def __init__(
        self,
        target: str,
        store: Store,
        registry: Registry,
        settings: WorkerSettings,
        processes: int,
        version: str,
        janitor: Janitor,
        log_format: str,
        scheduling: bool = True,
        url: str | None = None,
    ) -> None:
        self._target = target
        self._url = url
        self._store = store
        self._registry = registry
        self._settings = settings
        self._processes = processes
        self._version = version
        self._children: dict[UUID, _Child] = {}
        self._keeper = LeaseKeeper(store, settings.lease)
        self._watchdog = Watchdog(store, registry, settings.lease)
        self._janitor = janitor
        self._log_format = log_format
        self._scheduling = scheduling
        self._stopping = asyncio.Event()
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)
        self._early_deaths = 0

    async def run(self) -> None:
        """Supervise until told to stop and every worker has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loops = [
            Loop("heartbeat", self._keeper.tick),
            Loop("watchdog", self._watchdog.tick),
            Loop("health", self._check_health),
            Loop("janitor", self._janitor.tick),
        ]
        roles = [loop.create_task(each.run()) for each in loops]
        if self._scheduling:
            reconciler = Reconciler(self._store, self._registry.schedules)
            roles.append(loop.create_task(Loop("declarations", reconciler.tick).run()))
            roles.append(loop.create_task(Scheduler(self._store).run()))
        posts = [loop.create_task(self._hold_post()) for _ in range(self._processes)]
        try:
            await asyncio.gather(self._stopping.wait(), *posts)
        finally:
            for role in roles:
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)

    def stop(self) -> None:
        """Drain every worker; asked for again: at once."""
        grace = 0.0 if self._stopping.is_set() else self._settings.grace
        logger.info("stopping: %d workers, %g s of grace", len(self._children), grace)
        self._stopping.set()
        for child in self._children.values():
            child.tell(Drain(grace))

    async def _hold_post(self) -> None:
        """Keep one worker process running until told to stop."""
        while not self._stopping.is_set():
            async with self._starting:
                child = None if self._stopping.is_set() else await self._start()
                if child is None:
                    continue
                attending = asyncio.create_task(self._attend(child))
                with suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_START):
                        await child.is_up.wait()
            await attending
            await self._bury(child)
            await self._pause_after(child)

    async def _start(self) -> _Child | None:
        worker = new_id()
        try:
            child = await _spawned(worker)
        except OSError as error:
            logger.error("a worker process cannot be started: %s; trying again", error)
            await self._rest(1.0)
            return None
        if not await self._register(child):
            child.process.kill()
            await child.process.wait()
            child.writer.close()
            child.board.close()
            return None
        self._children[worker] = child
        self._keeper.add(worker, renewed=child.board.renewed, lost=lambda: child.tell(Lost()))
        child.tell(
            Orders(
                self._target,
                self._url,
                worker,
                child.registered_at,
                child.board.descriptor,
                self._settings,
                logger.getEffectiveLevel(),
                self._log_format,
            )
        )
        if self._stopping.is_set():
            child.tell(Drain(0.0))
        return child

    async def _register(self, child: _Child) -> bool:
        """Make the worker known to the store; False when told to stop before that worked."""
        record = describe(
            child.worker,
            child.process.pid,
            self._settings.queues,
            self._registry.names,
            self._version,
        )
        lease = timedelta(seconds=self._settings.lease)
        while not self._stopping.is_set():
            try:
                child.registered_at = clock.monotonic()
                await self._store.arun(self._store.register_worker(record, lease))
            except StoreError as error:
                logger.warning("the worker cannot be registered yet: %s", error)
                await self._rest(1.0)
            else:
                return True
        return False

    async def _attend(self, child: _Child) -> None:
        """Listen to the worker until its process has ended."""
        while True:
            message = await read_frame(child.reader, Pulse)
            child.is_up.set()
            if message is None:
                break
            child.looks_silent = 0
            child.deadline = message.deadline
        await child.process.wait()
        child.writer.close()

    async def _bury(self, child: _Child) -> None:
        """Take back what the worker had, at once: its process is known to be gone."""
        self._keeper.remove(child.worker)
        child.board.close()
        del self._children[child.worker]
        code = child.process.returncode or 0
        cause = child.killed_for or cause_of_death(code)
        if code != 0:
            logger.error("worker process %d ended: %s", child.process.pid, cause)
        tries = 0
        while True:
            try:
                taken = await self._store.arun(
                    self._store.reap([child.worker], cause, expired_only=False)
                )
            except StoreError as error:
                tries += 1
                if self._stopping.is_set() and tries > 5:
                    logger.error("left to other nodes: the jobs of %s: %s", child.worker, error)
                    return
                await asyncio.sleep(0.5)
                continue
            break
        if taken:
            logger.warning("took back %d jobs of worker process %d", len(taken), child.process.pid)
            await call_hooks_of_reaped(self._store, self._registry, taken)

    async def _pause_after(self, child: _Child) -> None:
        """Do not start processes as fast as they die."""
        if clock.monotonic() - child.started_at > SHORT_LIFE or child.process.returncode == 0:
            self._early_deaths = 0
            return
        self._early_deaths += 1
        await self._rest(min(LONGEST_RESTART_PAUSE, 0.1 * 2 ** min(self._early_deaths, 10)))

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _check_health(self) -> float:
        """Kill workers that are stopped or wedged, or whose jobs outrun their hard limits.

        A worker whose event loop does not turn is not wedged for a long time yet: a task may
        hold the interpreter's lock, or block the loop. Looks are counted, and not seconds: this
        process may have been stopped itself.
        """
        now = clock.monotonic()
        lease = self._settings.lease
        for child in list(self._children.values()):
            child.looks_silent += 1
            child.looks_stopped += 1
            if not is_stopped(child.process.pid):
                child.looks_stopped = 0
            silence = child.looks_silent * HEALTH_CHECK
            if child.looks_stopped * HEALTH_CHECK > lease:
                child.kill(f"it was stopped for {lease:g} s")
            elif silence > max(LONGEST_SILENCE, lease):
                child.kill(f"its event loop did not turn for {silence:.0f} s")
            elif child.deadline is not None and now > child.deadline + DEADLINE_MARGIN:
                child.kill("a job did not stop at its hard time limit")
        return HEALTH_CHECK
