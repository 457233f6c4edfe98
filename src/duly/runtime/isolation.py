"""Processes for tasks that must not share one: started when needed, used again, killable."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys

import msgspec

from duly.model.attempt import Failure, Outcome
from duly.model.job import JobRecord
from duly.model.report import LogLine
from duly.policy.verdict import Verdict
from duly.runtime.frames import framed, read_frame
from duly.runtime.machine import cause_of_death
from duly.runtime.slot import Slot

JOBS_A_PROCESS = 200

logger = logging.getLogger("duly.worker")


class Place(msgspec.Struct, frozen=True):
    """Where another process finds a task: in an app, or in the module that defines it."""

    path: list[str]
    app: str | None = None
    module: str | None = None
    name: str | None = None


class Assignment(msgspec.Struct, frozen=True):
    """One job for an isolated process."""

    job: JobRecord
    place: Place
    payload_limit: int
    soft_timeout: float | None = None
    memory_limit: int | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an isolated process says: how far it is, what it logged, or its verdict."""

    verdict: Verdict | None = None
    fraction: float | None = None
    text: str = ""
    line: LogLine | None = None


class _Process:
    """One isolated process and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer
        self.jobs = 0

    def kill(self) -> None:
        """End it now, with everything it has started."""
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


class Isolation:
    """Runs one job a process. `app` is MODULE:app where there is one.

    Without it, tasks are found through the module of their function, which a script that is run
    directly does not have: there, isolation is not available.
    """

    def __init__(self, app: str | None, payload_limit: int) -> None:
        self._app = app
        self._payload_limit = payload_limit
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()

    @property
    def available(self) -> bool:
        """Whether processes can be started here."""
        return hasattr(os, "killpg")

    async def run(self, slot: Slot) -> Verdict:
        """Run the slot's job in a process of its own; a crash is the job's own."""
        place = self._place(slot)
        if place is None:
            return Verdict(
                Outcome.FAILED,
                error=Failure(
                    type="NotIsolatable",
                    message=f"task {slot.job.task!r} is defined in a script or inside a function, "
                    "where another process cannot import it; move it to a module",
                ),
                final=True,
                reason="cannot be isolated",
            )
        process = self._idle.pop() if self._idle else await self._spawn()
        self._busy.add(process)
        slot.kill = process.kill
        try:
            return await self._converse(process, slot, place)
        finally:
            self._busy.discard(process)

    def close(self) -> None:
        """End every process."""
        for process in [*self._idle, *self._busy]:
            process.kill()
            process.writer.close()
        self._idle.clear()

    async def _converse(self, process: _Process, slot: Slot, place: Place) -> Verdict:
        soft = slot.definition.execution.soft_timeout
        assignment = Assignment(
            slot.job,
            place,
            self._payload_limit,
            None if soft is None else soft.total_seconds(),
            slot.definition.execution.memory_limit,
        )
        try:
            process.writer.write(framed(assignment))
            await process.writer.drain()
            while True:
                message: Message | None = await read_frame(process.reader, Message)
                if message is None:
                    break
                if message.fraction is not None:
                    slot.context.progress(message.fraction, message.text)
                elif message.line is not None:
                    logging.getLogger(message.line.logger).handle(_record(message.line))
                elif message.verdict is not None:
                    self._keep(process)
                    return message.verdict
        except ConnectionError:
            logger.info("the process of job %s is gone", slot.job.id)
        except asyncio.CancelledError:
            process.kill()
            raise
        process.kill()
        cause = cause_of_death(await process.process.wait())
        process.writer.close()
        crash = RuntimeError(cause)
        if slot.releasing or slot.stopping or slot.overdue:
            return slot.verdict_when_stopped(crash)
        error = Failure(type="ProcessCrashed", message=cause, fingerprint="ProcessCrashed")
        return Verdict(Outcome.CRASHED, error=error)

    def _keep(self, process: _Process) -> None:
        process.jobs += 1
        if process.jobs < JOBS_A_PROCESS:
            self._idle.append(process)
        else:
            process.kill()
            process.writer.close()

    async def _spawn(self) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            # From the event loop's own thread: the process asks to die with the thread it is
            # started by.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "duly.runtime.isolated",
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return _Process(process, reader, writer)

    def _place(self, slot: Slot) -> Place | None:
        if self._app is not None:
            return Place(path=sys.path, app=self._app, name=slot.job.task)
        function = slot.definition.function
        module: str | None = function.__module__
        if module == "__main__":
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            module = None if spec is None else spec.name
        if module is None or "<locals>" in function.__qualname__:
            return None
        return Place(path=sys.path, module=module, name=function.__qualname__)


def _record(line: LogLine) -> logging.LogRecord:
    level = logging.getLevelNamesMapping().get(line.level, logging.INFO)
    return logging.LogRecord(line.logger, level, "", 0, line.message, None, None)
