"""The companion of an embedded worker: keeps its lease from another process, and takes its jobs
back at once when the program dies. Run as `python -m duly.runtime.guardian DESCRIPTOR`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress

from duly.config import Config
from duly.errors import StoreError
from duly.runtime.frames import framed, read_frame
from duly.runtime.keeper import LeaseKeeper
from duly.runtime.lease import LeaseBoard
from duly.runtime.loop import Loop
from duly.runtime.machine import is_stopped
from duly.runtime.messages import Charge, Farewell, Lost
from duly.store.open import open_store
from duly.store.protocol import Store

CAUSE = "the program that ran the worker is gone"
CAUSE_STOPPED = "the program that ran the worker was stopped"
LOOK = 1.0

logger = logging.getLogger("duly.lease")


def main() -> None:
    """Serve the program at the other end of the socket until it hangs up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(_guard(socket.socket(fileno=int(sys.argv[1]))))


async def _guard(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    charge = await read_frame(reader, Charge)
    if charge is None:
        return
    store = open_store(Config(url=charge.url, schema=charge.schema, pool_size=2))
    keeper = LeaseKeeper(store, charge.lease)
    keeper.add(
        charge.worker,
        renewed=LeaseBoard(charge.lease_board).renewed,
        lost=lambda: writer.write(framed(Lost())),
    )
    beating = asyncio.create_task(Loop("heartbeat", keeper.tick).run())
    watch = _Watch(charge, connection)
    looking = asyncio.create_task(watch.look())
    farewell = await read_frame(reader, Farewell)
    beating.cancel()
    looking.cancel()
    if farewell is None:
        await _take_back(store, charge, CAUSE_STOPPED if watch.found_stopped else CAUSE)
    store.close()


async def _take_back(store: Store, charge: Charge, cause: str) -> None:
    for _ in range(20):
        try:
            await store.arun(store.reap([charge.worker], cause, expired_only=False))
        except StoreError:
            await asyncio.sleep(0.5)
        else:
            return


class _Watch:
    """An eye on the program: is it there, and does it go on?

    When it is not, the socket's end is made to be read: the program's own end of it may be held
    by something that it has forked. A program that says nothing goes on all the same: its code
    may hold the interpreter's lock, or block the worker's event loop.
    """

    def __init__(self, charge: Charge, connection: socket.socket) -> None:
        self.found_stopped = False
        self._charge = charge
        self._connection = connection
        self._looks_stopped = 0

    async def look(self) -> None:
        """Look until the program is gone or stopped."""
        while True:
            if self._is_over():
                break
            await asyncio.sleep(LOOK)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def _is_over(self) -> bool:
        if os.getppid() != self._charge.process:
            return True
        self._looks_stopped += 1
        if not is_stopped(self._charge.process):
            self._looks_stopped = 0
        self.found_stopped = self._looks_stopped * LOOK > self._charge.lease
        return self.found_stopped


if __name__ == "__main__":
    main()
