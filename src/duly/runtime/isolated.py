"""The inside of an isolated process: takes one job after another from its worker.

Run as `python -m duly.runtime.isolated DESCRIPTOR`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import resource
import signal
import socket
import sys
import threading
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from duly.control import TimeLimitExceeded
from duly.errors import StoreUnavailable
from duly.model.attempt import Failure, Outcome
from duly.model.job import Delivery, JobRecord
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import Superseded, raised, run_blocking, run_transactional
from duly.runtime.context import JobContext
from duly.runtime.failure import failure_of
from duly.runtime.frames import framed, receive
from duly.runtime.isolation import Answer, Assignment, Message, Place
from duly.runtime.parent import die_with_parent, leave_stopping_to_the_parent
from duly.runtime.reporter import LogCapture
from duly.runtime.steps.port import ANSWERS, Keep, Request, StorePort, no_transaction
from duly.runtime.target import load_target
from duly.runtime.text import storable


class _Worker:
    """The worker at the other end of the socket. Any thread of a task may speak to it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self.app: Any = None
        """The app of the task at hand, where it is known."""

    def next_assignment(self) -> Assignment | None:
        """The next job; None when the worker has hung up."""
        assignment: Assignment | None = receive(self._connection, Assignment)
        return assignment

    def ask(self, request: Request) -> Any:
        """See Port.ask; the worker has the store."""
        with self._asking:
            self.tell(Message(ask=request))
            answer = receive(self._connection, Answer)
        if answer is None or answer.problem is not None:
            raise StoreUnavailable("the worker is gone" if answer is None else answer.problem)
        return msgspec.json.decode(answer.value, type=ANSWERS[type(request)])

    async def aask(self, request: Request) -> Any:
        """See Port.aask."""
        return await asyncio.to_thread(self.ask, request)

    def transaction(self) -> AbstractContextManager[tuple[Any, Keep]]:
        """See Port.transaction."""
        return no_transaction() if self.app is None else _transaction(self.app)

    def tell(self, message: Message) -> None:
        """Send a message, whole."""
        with self._lock:
            self._connection.sendall(framed(message))


def main() -> None:
    """Serve the worker at the other end of the socket until it hangs up."""
    die_with_parent()
    leave_stopping_to_the_parent()
    worker = _Worker(socket.socket(fileno=int(sys.argv[1])))
    capture = LogCapture(lambda line: worker.tell(Message(line=line)))
    logging.getLogger().addHandler(capture)
    logging.getLogger().setLevel(logging.INFO)
    while (assignment := worker.next_assignment()) is not None:
        worker.tell(Message(begins=True))
        ending = _ending(assignment, worker)
        capture.forget(assignment.job)
        worker.tell(ending)


def _ending(assignment: Assignment, worker: _Worker) -> Message:
    """Do the job. With threads left behind by it, the process is not fit for another."""
    refused = False
    verdict: Verdict | None = None
    try:
        verdict = _perform(assignment, worker)
    except Superseded:
        refused = True
    return Message(
        verdict=verdict,
        settled=verdict is None and not refused,
        refused=refused,
        worn=threading.active_count() > 1,
    )


def _perform(assignment: Assignment, worker: _Worker) -> Verdict | None:
    try:
        app, definition = _find(assignment.place)
    except Exception as error:
        return Verdict(
            Outcome.FAILED, error=failure_of(error), final=True, reason="cannot be imported"
        )
    if definition is None:
        problem = f"task {assignment.job.task!r} is not where its worker said it is"
        return Verdict(Outcome.FAILED, error=Failure("UnknownTask", problem), final=True)

    def report(job: JobRecord, fraction: float, message: str) -> None:
        worker.tell(Message(fraction=fraction, text=storable(message)))

    worker.app = app
    context = JobContext(
        assignment.job, report, worker, assignment.payload_limit, definition.is_async
    )
    worker.tell(Message(ready=True))
    _limit_memory(assignment.memory_limit)
    signal.signal(signal.SIGALRM, _out_of_time)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, assignment.soft_timeout or 0)
            return _run(app, definition, assignment, context)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Superseded:
        raise
    except Exception as error:
        # A commit that failed, or a timer that went off between the task and the line above.
        return raised(definition, assignment.job, error)
    finally:
        _limit_memory(None)


def _run(
    app: Any, definition: TaskDefinition, assignment: Assignment, context: JobContext
) -> Verdict | None:
    job, limit = assignment.job, assignment.payload_limit
    if job.delivery is Delivery.TRANSACTIONAL:
        client = app.client
        return run_transactional(definition, job, context, limit, client.store, client.transaction)
    return run_blocking(definition, job, context, limit)


def _transaction(app: Any) -> AbstractContextManager[tuple[Any, Keep]]:
    return StorePort(app.client.store, app.client.transaction).transaction()


def _find(place: Place) -> tuple[Any, TaskDefinition | None]:
    """The app, where it is known, and the task."""
    for entry in reversed(place.path):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    if place.app is not None:
        app = load_target(place.app, place.url)
        return app, app.registry.get(place.name)
    found: Any = importlib.import_module(place.module or "")
    for name in (place.name or "").split("."):
        found = getattr(found, name)
    return None, getattr(found, "definition", None)


def _limit_memory(limit: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if limit is None or (hard != resource.RLIM_INFINITY and limit > hard):
        limit = hard
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _out_of_time(number: int, frame: object) -> None:
    raise TimeLimitExceeded("the attempt ran for longer than its soft time limit")


if __name__ == "__main__":
    main()
