"""Starting processes that serve this one over a socket and die with it."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress


class Companion:
    """A process that runs one of Duly's modules, and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer
        self._watching = asyncio.create_task(self._hang_up_at_its_death())

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, or nobody listens there."""
        return self.process.returncode is not None or self.reader.at_eof()

    async def _hang_up_at_its_death(self) -> None:
        """Let readers see the end of the stream when the process is dead, also when something
        that it has forked still holds the other end of the socket."""
        await self.process.wait()
        with suppress(OSError):
            self.writer.get_extra_info("socket").shutdown(socket.SHUT_RD)


async def spawn(module: str, *inherited: int) -> Companion:
    """Start `python -m MODULE DESCRIPTOR` in a session of its own; it inherits descriptors.

    From the event loop's own thread: the process asks to die with the thread it is started by.
    """
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(theirs.fileno()),
            pass_fds=[theirs.fileno(), *inherited],
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    return Companion(process, reader, writer)
