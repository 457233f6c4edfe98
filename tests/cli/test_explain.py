"""The one plain sentence, for every situation a job can be in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from duly.model.attempt import Failure
from duly.model.identifiers import new_id
from duly.model.job import JobRecord, State
from duly.model.query import QueueState
from duly.model.worker import Worker
from duly.service.explain import Cause, Explanation, Surroundings, explain
from tests.support.stores import worker

NOW = datetime(2026, 11, 16, 6, 0, tzinfo=UTC)
HOST = worker(name="host-a:4711", queues=("mail",), tasks=("send",), lease_left=10.0)
ERROR = Failure("ValueError", "no such user\nsecond line")


def _job(**fields: Any) -> JobRecord:
    made = JobRecord(
        id=new_id(),
        task="send",
        queue="mail",
        priority=5,
        state=State.PENDING,
        run_at=NOW - timedelta(seconds=3),
        created_at=NOW - timedelta(seconds=3),
        arguments="{}",
        max_attempts=4,
    )
    return msgspec.structs.replace(made, **fields)


def _explain(
    job: JobRecord,
    workers: Iterable[Worker] = (HOST,),
    paused: str | None = None,
    note: str | None = None,
) -> Explanation:
    queues = {} if paused is None else {paused: QueueState(paused, True, note)}
    around = Surroundings(queues=queues, workers=list(workers), catalogued=frozenset({"send"}))
    return explain(job, NOW, around)


@pytest.mark.parametrize(
    ("fields", "around", "cause", "sentence"),
    [
        (
            {"run_at": NOW + timedelta(hours=3)},
            {},
            Cause.SCHEDULED,
            "waits for 2026-11-16 09:00 UTC (in 3 h)",
        ),
        (
            {"run_at": NOW + timedelta(hours=3)},
            {"paused": "mail"},
            Cause.SCHEDULED,
            "waits for 2026-11-16 09:00 UTC (in 3 h); besides, queue 'mail' is paused",
        ),
        (
            {"run_at": NOW + timedelta(seconds=12), "attempt": 2, "error": ERROR},
            {},
            Cause.RETRYING,
            "retrying in 12 s after attempt 2 of 4 failed with ValueError: no such user",
        ),
        (
            {"expires_at": NOW - timedelta(minutes=1)},
            {},
            Cause.EXPIRED,
            "expired 1 min ago, before it could start: the next worker that looks cancels it",
        ),
        (
            {},
            {"paused": "mail", "note": "provider is down"},
            Cause.QUEUE_PAUSED,
            "ready for 3 s, but queue 'mail' is paused: provider is down",
        ),
        ({}, {"workers": ()}, Cause.NO_WORKER, "ready for 3 s, but no worker is running"),
        (
            {},
            {"workers": (msgspec.structs.replace(HOST, lease_left=-1.0),)},
            Cause.NO_WORKER,
            "ready for 3 s, but no worker is running",
        ),
        (
            {"queue": "bulk"},
            {},
            Cause.NO_WORKER_FOR_QUEUE,
            "ready for 3 s, but no live worker serves queue 'bulk'",
        ),
        (
            {"task": "charge"},
            {},
            Cause.NO_WORKER_FOR_TASK,
            "ready for 3 s, but no live worker of queue 'mail' knows task 'charge', "
            "and none has ever published it",
        ),
        (
            {},
            {"workers": (msgspec.structs.replace(HOST, tasks=()),)},
            Cause.NO_WORKER_FOR_TASK,
            "ready for 3 s, but no live worker of queue 'mail' knows task 'send'",
        ),
        (
            {"queue": "bulk"},
            {"workers": (msgspec.structs.replace(HOST, queues=()),)},
            Cause.NO_FREE_WORKER,
            "ready for 3 s: the worker that could run it is busy with other jobs",
        ),
        (
            {},
            {"workers": (HOST, HOST)},
            Cause.NO_FREE_WORKER,
            "ready for 3 s: the 2 workers that could run it are busy with other jobs",
        ),
        (
            {"run_at": NOW - timedelta(seconds=0.4)},
            {},
            Cause.NO_FREE_WORKER,
            "ready for 0.4 s: about to be started",
        ),
        ({"state": State.BLOCKED}, {}, Cause.BLOCKED, "waits for other jobs of its flow"),
        (
            {"state": State.WAITING},
            {},
            Cause.WAITING,
            "suspended by its own code: waits for an event or the end of a sleep",
        ),
        (
            {
                "state": State.RUNNING,
                "worker": HOST.id,
                "attempt": 1,
                "started_at": NOW - timedelta(seconds=75),
            },
            {},
            Cause.RUNNING,
            "running on worker host-a:4711 since 2026-11-16 05:58:45 UTC (1 min 15 s), "
            "attempt 1 of 4",
        ),
        (
            {
                "state": State.RUNNING,
                "worker": HOST.id,
                "attempt": 1,
                "started_at": NOW - timedelta(seconds=75),
                "cancel_requested_at": NOW - timedelta(seconds=5),
            },
            {},
            Cause.CANCELLING,
            "running on worker host-a:4711 since 2026-11-16 05:58:45 UTC (1 min 15 s), "
            "attempt 1 of 4; it was asked to stop 5 s ago",
        ),
        (
            {"state": State.RUNNING, "worker": HOST.id},
            {},
            Cause.STARTING,
            "claimed by worker host-a:4711, about to start",
        ),
        (
            {"state": State.RUNNING, "worker": HOST.id, "started_at": NOW},
            {"workers": (msgspec.structs.replace(HOST, lease_left=-4.0),)},
            Cause.WORKER_LOST,
            "the lease of its worker host-a:4711 ended 4 s ago: another one takes the job back "
            "within moments, if one is running",
        ),
        (
            {"state": State.RUNNING, "worker": new_id(), "started_at": NOW},
            {},
            Cause.WORKER_LOST,
            "its worker is gone: another one takes the job back within moments, if one is running",
        ),
        (
            {
                "state": State.SUCCEEDED,
                "attempt": 1,
                "started_at": NOW - timedelta(seconds=61),
                "finished_at": NOW - timedelta(seconds=60),
            },
            {},
            Cause.SUCCEEDED,
            "succeeded at 2026-11-16 05:59 UTC (1 min ago), after 1 s, in attempt 1 of 4",
        ),
        (
            {
                "state": State.DEAD,
                "attempt": 4,
                "finished_at": NOW - timedelta(minutes=1),
                "reason": "attempts exhausted",
                "error": ERROR,
            },
            {},
            Cause.DEAD,
            "dead since 2026-11-16 05:59 UTC (1 min ago), after attempt 4 of 4, "
            "attempts exhausted: ValueError: no such user",
        ),
        (
            {"state": State.DEAD, "crashes": 3, "finished_at": NOW, "reason": "crashed"},
            {},
            Cause.DEAD,
            "dead since 2026-11-16 06:00 UTC (now), after 3 crashes, crashed",
        ),
        (
            {"state": State.CANCELLED, "finished_at": NOW, "reason": "expired"},
            {},
            Cause.CANCELLED,
            "cancelled at 2026-11-16 06:00 UTC (now): expired",
        ),
        (
            {"state": State.CANCELLED, "finished_at": NOW, "reason": "cancelled on request"},
            {},
            Cause.CANCELLED,
            "cancelled on request, at 2026-11-16 06:00 UTC (now)",
        ),
    ],
)
def test_sentences(
    fields: dict[str, Any], around: dict[str, Any], cause: Cause, sentence: str
) -> None:
    assert _explain(_job(**fields), **around) == Explanation(cause, sentence)


def test_a_long_message_is_cut() -> None:
    error = Failure("ValueError", "x" * 1000)
    job = _job(state=State.DEAD, attempt=1, finished_at=NOW, error=error)
    assert len(_explain(job).sentence) < 300


def test_an_error_without_a_message() -> None:
    job = _job(state=State.DEAD, attempt=1, finished_at=NOW, error=Failure("KeyboardInterrupt", ""))
    assert _explain(job).sentence.endswith(": KeyboardInterrupt")
