"""The inside of an isolated process: takes one job after another from its worker.

Run as `python -m duly.runtime.isolated DESCRIPTOR`.
"""

from __future__ import annotations

import importlib
import logging
import resource
import signal
import socket
import sys
from typing import Any

from duly.control import TimeLimitExceeded
from duly.model.attempt import Failure, Outcome
from duly.model.job import JobRecord
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import run_blocking
from duly.runtime.context import JobContext
from duly.runtime.failure import failure_of
from duly.runtime.frames import framed, receive
from duly.runtime.isolation import Assignment, Message, Place
from duly.runtime.parent import die_with_parent
from duly.runtime.reporter import LogCapture
from duly.runtime.target import load_target


def main() -> None:
    """Serve the worker at the other end of the socket until it hangs up."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    capture = LogCapture(lambda line: connection.sendall(framed(Message(line=line))))
    logging.getLogger().addHandler(capture)
    logging.getLogger().setLevel(logging.INFO)
    while (assignment := receive(connection, Assignment)) is not None:
        verdict = _perform(assignment, connection)
        capture.forget(assignment.job)
        connection.sendall(framed(Message(verdict=verdict)))


def _perform(assignment: Assignment, connection: socket.socket) -> Verdict:
    try:
        definition = _find(assignment.place)
    except Exception as error:
        return Verdict(
            Outcome.FAILED, error=failure_of(error), final=True, reason="cannot be imported"
        )
    if definition is None:
        problem = f"task {assignment.job.task!r} is not where its worker said it is"
        return Verdict(Outcome.FAILED, error=Failure("UnknownTask", problem), final=True)

    def report(job: JobRecord, fraction: float, message: str) -> None:
        connection.sendall(framed(Message(fraction=fraction, text=message)))

    context = JobContext(assignment.job, report)
    _limit_memory(assignment.memory_limit)
    if assignment.soft_timeout is not None:
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, assignment.soft_timeout)
    try:
        return run_blocking(definition, assignment.job, context, assignment.payload_limit)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _limit_memory(None)


def _find(place: Place) -> TaskDefinition | None:
    for entry in reversed(place.path):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    if place.app is not None:
        found: Any = load_target(place.app)
        definition: TaskDefinition | None = found.registry.get(place.name)
        return definition
    found = importlib.import_module(place.module or "")
    for name in (place.name or "").split("."):
        found = getattr(found, name)
    return getattr(found, "definition", None)


def _limit_memory(limit: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard if limit is None else limit, hard))


def _out_of_time(number: int, frame: object) -> None:
    raise TimeLimitExceeded("the attempt ran for longer than its soft time limit")


if __name__ == "__main__":
    main()
