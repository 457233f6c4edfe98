"""Processes for tasks that must not share one: started when needed, used again, killable."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import msgspec

from duly.errors import DulyError
from duly.model.attempt import Failure, Outcome
from duly.model.job import Delivery, JobRecord
from duly.model.report import LogLine
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import Superseded
from duly.runtime.frames import framed, read_frame
from duly.runtime.machine import cause_of_death
from duly.runtime.processes import Companion, spawn
from duly.runtime.slot import Slot
from duly.runtime.steps.port import Request

JOBS_A_PROCESS = 200

logger = logging.getLogger("duly.worker")


class Place(msgspec.Struct, frozen=True):
    """Where another process finds a task: in an app, or in the module that defines it."""

    path: list[str]
    app: str | None = None
    url: str | None = None
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
    """What an isolated process says: that it begins, how far it is, what it logged, how it ended.

    It `begins` when it has the assignment, and is `ready` when it has found the task's code.
    `settled` instead of a verdict: a transactional job has committed its own completion;
    `refused`: its token was stale. `worn` says with either that the process is not fit for
    another job. What it asks of the store is answered by an Answer.
    """

    begins: bool = False
    ready: bool = False
    fraction: float | None = None
    text: str = ""
    line: LogLine | None = None
    verdict: Verdict | None = None
    settled: bool = False
    refused: bool = False
    worn: bool = False
    ask: Request | None = None


class Answer(msgspec.Struct, frozen=True):
    """What the store says to an isolated process: a value as JSON, or what is wrong."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    problem: str | None = None


class _Process:
    """One isolated process."""

    def __init__(self, companion: Companion) -> None:
        self.companion = companion
        self.jobs = 0

    def kill(self) -> None:
        """End it now, with everything it has started."""
        try:
            os.killpg(self.companion.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def end(self) -> None:
        """Kill it and let go of the socket."""
        self.kill()
        self.companion.writer.close()


class Isolation:
    """Runs one job a process. `app` is MODULE:app where there is one.

    Without it, tasks are found through the module of their function, which a script that is run
    directly does not have. With a `url` the app works on that database.
    """

    def __init__(self, app: str | None, payload_limit: int, url: str | None = None) -> None:
        self._app = app
        self._url = url
        self._payload_limit = payload_limit
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()

    def can_run(self, job: JobRecord, definition: TaskDefinition) -> bool:
        """Whether another process can run this job."""
        if not hasattr(os, "killpg"):
            return False
        if job.delivery is Delivery.TRANSACTIONAL:
            # It needs the app's store over there, not only its function.
            return self._app is not None
        return self._place(definition) is not None

    async def run(self, slot: Slot) -> Verdict | None:
        """Run the slot's job in a process of its own; a crash is the job's own.

        None: the job was transactional and has committed its completion itself. Superseded: its
        token was stale.
        """
        place = self._place(slot.definition)
        if place is None:
            return _not_isolatable(slot.job)
        while True:
            process, fresh = await self._take(slot)
            self._busy.add(process)
            slot.kill = process.kill
            try:
                return await self._converse(process, slot, place)
            except _EndedBefore as ended:
                if fresh:
                    return ended.verdict
            finally:
                self._busy.discard(process)

    def close(self) -> None:
        """End every process."""
        for process in [*self._idle, *self._busy]:
            process.end()
        self._idle.clear()

    async def _take(self, slot: Slot) -> tuple[_Process, bool]:
        """A process, and whether it is a new one. A job under suspicion gets a new one: it must
        not be charged for what another left behind."""
        while self._idle and not slot.job.alone:
            process = self._idle.pop()
            if not process.companion.is_gone:
                return process, False
            process.end()
        return _Process(await spawn("duly.runtime.isolated")), True

    async def _converse(self, process: _Process, slot: Slot, place: Place) -> Verdict | None:
        companion = process.companion
        begun = False
        try:
            companion.writer.write(framed(self._assignment(slot, place)))
            await companion.writer.drain()
            while (message := await read_frame(companion.reader, Message)) is not None:
                begun = begun or message.begins
                if message.ready:
                    slot.code_starts()
                elif message.fraction is not None:
                    slot.context.progress(message.fraction, message.text)
                elif message.line is not None:
                    _pass_on(message.line)
                elif message.ask is not None:
                    companion.writer.write(framed(await _answer(slot, message.ask)))
                    await companion.writer.drain()
                elif message.verdict is not None or message.settled or message.refused:
                    self._keep(process, message.worn)
                    if message.refused:
                        raise Superseded
                    verdict: Verdict | None = message.verdict
                    return verdict
        except ConnectionError:
            logger.info("the process of job %s is gone", slot.job.id)
        except asyncio.CancelledError:
            process.end()
            raise
        process.end()
        cause = cause_of_death(await companion.process.wait())
        if slot.releasing or slot.stopping or slot.overdue is not None:
            return slot.verdict_when_stopped(RuntimeError(cause))
        error = Failure(type="ProcessCrashed", message=cause, fingerprint="ProcessCrashed")
        crash = Verdict(Outcome.CRASHED, error=error)
        if not begun:
            raise _EndedBefore(crash)
        return crash

    def _assignment(self, slot: Slot, place: Place) -> Assignment:
        soft = slot.definition.execution.soft_timeout
        return Assignment(
            slot.job,
            place,
            self._payload_limit,
            None if soft is None else soft.total_seconds(),
            slot.definition.execution.memory_limit,
        )

    def _keep(self, process: _Process, worn: bool) -> None:
        process.jobs += 1
        if worn or process.jobs >= JOBS_A_PROCESS:
            process.end()
        else:
            self._idle.append(process)

    def _place(self, definition: TaskDefinition) -> Place | None:
        if self._app is not None:
            return Place(path=sys.path, app=self._app, url=self._url, name=definition.name)
        function = definition.function
        module: str | None = function.__module__
        if module == "__main__":
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            module = None if spec is None else spec.name
        if module is None or "<locals>" in function.__qualname__:
            return None
        return Place(path=sys.path, module=module, name=function.__qualname__)


class _EndedBefore(Exception):
    """The process ended before it began with the job."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__()


def _not_isolatable(job: JobRecord) -> Verdict:
    return Verdict(
        Outcome.FAILED,
        error=Failure(
            type="NotIsolatable",
            message=f"task {job.task!r} is defined in a script or inside a function, where "
            "another process cannot import it; move it to a module",
        ),
        final=True,
        reason="cannot be isolated",
    )


async def _answer(slot: Slot, request: Request) -> Answer:
    assert slot.context.port is not None
    try:
        value = await slot.context.port.aask(request)
    except DulyError as error:
        return Answer(problem=str(error))
    return Answer(msgspec.Raw(msgspec.json.encode(value)))


def _pass_on(line: LogLine) -> None:
    """Log here what was logged there."""
    level = logging.getLevelNamesMapping().get(line.level, logging.INFO)
    target = logging.getLogger(line.logger)
    if target.isEnabledFor(level):
        record = logging.LogRecord(line.logger, level, "", 0, line.message, None, None)
        record.created = line.at.timestamp()
        target.handle(record)
