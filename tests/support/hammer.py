"""A process that enqueues, claims and settles on a store until its time is up.

Run as a program with the URL and the seconds; prints what it did as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

from duly.model.query import Demand
from duly.model.settlement import retry, succeed
from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import TASK, draft, worker


def open_store(where: str) -> Store:
    """The store at a URL or in a file."""
    return PostgresStore(where, size=2) if where.startswith("postgres") else SqliteStore(where)


def hammer(store: Store, seconds: float) -> dict[str, list[str]]:
    """What was accepted, claimed (job and token) and settled."""
    did: dict[str, list[str]] = {"enqueued": [], "claimed": [], "succeeded": []}
    me = worker()
    store.run(store.register_worker(me, timedelta(hours=1)))
    demand = Demand(worker=me.id, queues=("default",), tasks=(TASK,), limit=10)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        drafts = [draft(max_attempts=1000) for _ in range(5)]
        store.run(store.enqueue(drafts))
        did["enqueued"] += [str(each.id) for each in drafts]
        _work(store, demand, did)
    while _work(store, demand, did):
        pass
    return did


def _work(store: Store, demand: Demand, did: dict[str, list[str]]) -> bool:
    jobs = store.run(store.claim(demand))
    did["claimed"] += [f"{job.id}:{job.token}" for job in jobs]
    settlements = [
        succeed(job.id, job.token, "1")
        if job.id.int % 4 or job.attempt > 1
        else retry(job.id, job.token, timedelta(0), None)
        for job in jobs
    ]
    landed = store.run(store.settle(settlements))
    assert all(landed), "a settlement of our own claim was refused"
    did["succeeded"] += [str(each.job_id) for each in settlements if each.state == "succeeded"]
    return bool(jobs)


if __name__ == "__main__":
    opened = open_store(sys.argv[1])
    print(json.dumps(hammer(opened, float(sys.argv[2]))))
    opened.close()
