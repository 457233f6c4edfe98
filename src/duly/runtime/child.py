"""A worker process under a supervisor. Run as `python -m duly.runtime.child DESCRIPTOR`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys

from duly.clock import runtime_clock as clock
from duly.runtime.eventloop import new_event_loop
from duly.runtime.frames import framed, read_frame, receive
from duly.runtime.isolation import Isolation
from duly.runtime.lease import LeaseBoard, LeaseClock
from duly.runtime.leaving import Ending
from duly.runtime.logs import configure_logs
from duly.runtime.machine import resident_bytes
from duly.runtime.messages import Drain, Lost, Orders, Pulse, ToWorker
from duly.runtime.parent import die_with_parent, leave_stopping_to_the_parent
from duly.runtime.target import load_target
from duly.runtime.worker import Worker

PULSE = 1.0
STOPPED_SHORT = 75
SWITCH = 0.001
"""After how many seconds code that computes makes way for a thread that talks to the store, and may
hold a lock there."""

logger = logging.getLogger("duly.worker")


def main() -> None:
    """Take orders from the supervisor at the other end of the socket, and work."""
    die_with_parent()
    leave_stopping_to_the_parent()
    connection = socket.socket(fileno=int(sys.argv[1]))
    orders = receive(connection, Orders)
    if orders is None:
        return
    board = LeaseBoard(orders.lease_board)
    lease = LeaseClock(orders.settings.lease, orders.registered_at, board)
    configure_logs(orders.log_level, orders.log_format)
    app = load_target(orders.app, orders.url)
    # What is loaded now stays: the collector need not walk it again and again.
    gc.freeze()
    sys.setswitchinterval(SWITCH)
    code = STOPPED_SHORT
    try:
        # Not asyncio.run: it would wait for tasks that do not heed their cancellation.
        ending = new_event_loop().run_until_complete(_work(app, orders, lease, connection))
        code = 0 if ending is Ending.DRAINED else STOPPED_SHORT
    except Exception:
        logger.exception("the worker failed")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads whose code does not stop must not keep the process.
    os._exit(code)


async def _work(
    app: object, orders: Orders, lease: LeaseClock, connection: socket.socket
) -> Ending:
    reader, writer = await asyncio.open_connection(sock=connection)
    client = app.client  # type: ignore[attr-defined]
    settings = orders.settings
    worker = Worker(
        orders.worker,
        client.store,
        client.registry,
        client.transaction,
        settings,
        lease,
        Isolation(orders.app, settings.payload_limit, orders.url),
    )
    worker.deadline_is_near = lambda: _beat(writer, worker)
    loop = asyncio.get_running_loop()
    drains = _Drains(worker, settings.grace)
    loop.add_signal_handler(signal.SIGTERM, drains.request)
    helpers = [
        loop.create_task(_listen(reader, worker, drains)),
        loop.create_task(_pulse(writer, worker, drains)),
    ]
    try:
        return await worker.run()
    finally:
        for helper in helpers:
            helper.cancel()
        writer.close()


class _Drains:
    """The first request drains within its grace period; one without any grace, at once.

    A signal to every process of a service and the supervisor's word for it are one request.
    """

    def __init__(self, worker: Worker, grace: float) -> None:
        self._worker = worker
        self._grace = grace
        self._task: asyncio.Task[None] | None = None

    @property
    def requested(self) -> bool:
        """Whether the worker is on its way out."""
        return self._task is not None

    def request(self, grace: float | None = None) -> None:
        """Drain, or hurry."""
        if self._task is None:
            self._task = asyncio.ensure_future(
                self._worker.drain(self._grace if grace is None else grace)
            )
        elif grace == 0:
            self._worker.hurry()


async def _listen(reader: asyncio.StreamReader, worker: Worker, drains: _Drains) -> None:
    while True:
        match await read_frame(reader, ToWorker):
            case Lost():
                worker.lose_lease()
            case Drain(grace=grace):
                drains.request(grace)
            case None:
                # The supervisor is gone; the kernel's signal may not be there to say so.
                os._exit(1)


def _beat(writer: asyncio.StreamWriter, worker: Worker) -> None:
    until = worker.next_deadline()
    deadline = None if until is None else clock.monotonic() + until
    writer.write(framed(Pulse(len(worker.jobs), worker.finished_jobs, deadline)))


async def _pulse(writer: asyncio.StreamWriter, worker: Worker, drains: _Drains) -> None:
    while True:
        _beat(writer, worker)
        if not drains.requested:
            _recycle_when_worn(worker, drains)
        await asyncio.sleep(PULSE)


def _recycle_when_worn(worker: Worker, drains: _Drains) -> None:
    settings = worker.settings
    if settings.max_jobs is not None and worker.finished_jobs >= settings.max_jobs:
        logger.info("recycled after %d jobs", worker.finished_jobs)
        drains.request()
    elif settings.max_memory is not None and resident_bytes(os.getpid()) > settings.max_memory:
        logger.info("recycled: it holds more than %d bytes of memory", settings.max_memory)
        drains.request()


if __name__ == "__main__":
    main()
