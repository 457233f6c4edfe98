"""The companion of an embedded worker: keeps its lease from another process, and takes its jobs
back at once when the program dies. Run as `python -m duly.runtime.guardian DESCRIPTOR`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

from duly.config import Config
from duly.errors import StoreError
from duly.runtime.frames import framed, read_frame
from duly.runtime.keeper import LeaseKeeper
from duly.runtime.loop import Loop
from duly.runtime.messages import Charge, Farewell, Lost, Renewed, ToGuardian
from duly.store.open import open_store

CAUSE = "the program that ran the worker is gone"


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
        renewed=lambda sent_at: writer.write(framed(Renewed(sent_at))),
        lost=lambda: writer.write(framed(Lost())),
    )
    beating = asyncio.create_task(Loop("heartbeat", keeper.tick).run())
    goodbye = await read_frame(reader, ToGuardian)
    beating.cancel()
    if not isinstance(goodbye, Farewell):
        for _ in range(20):
            try:
                await store.arun(store.reap([charge.worker], CAUSE, expired_only=False))
            except StoreError:
                await asyncio.sleep(0.5)
            else:
                break
    store.close()


if __name__ == "__main__":
    main()
