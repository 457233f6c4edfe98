"""What is done to the fleet and to its database while it works; everything is counted."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import psycopg

from duly import App
from duly.policy.reaping import after_crash
from duly.store.migrate import Migration
from duly.store.postgres import schema as postgres_schema
from duly.store.sqlite import schema as sqlite_schema
from duly.testing import Loss
from tests.chaos.inside import FULL
from tests.support.cutting_proxy import CuttingProxy
from tests.support.fleet import Fleet, WorkerProcess, send
from tests.support.postgres import Server

NO_DATABASE = "cannot be reached"
NO_ROOM = "no room left"
OPTIONS = ("--processes", 2, "--concurrency", 8)


class Faults:
    """A fleet of two workers with two processes each, and all that may befall it.

    `longest_pause` is how long processes are stopped at most. `observer` has a way of its own to
    the database.
    """

    def __init__(
        self, site: Fleet, observer: App, chance: random.Random, longest_pause: float
    ) -> None:
        self.count: Counter[str] = Counter()
        self.losses: list[Loss] = []
        self._passing: list[tuple[threading.Timer, Callable[[], None]]] = []
        self.workers = [site.start(*OPTIONS) for _ in range(2)]
        self.leaving: list[WorkerProcess] = []
        self._site = site
        self._observer = observer
        self._chance = chance
        self._longest_pause = longest_pause
        self._kinds: list[Callable[[], None]] = [
            self.kill_a_process,
            self.kill_a_supervisor,
            self.kill_a_tree,
            self.pause_a_process,
            self.pause_a_tree,
            self.drain,
            self.take_from_the_living,
            self.take_from_the_living,
        ]

    def add_proxy(self, proxy: CuttingProxy) -> None:
        """Replies can be lost."""

        def lose_replies() -> None:
            self.count["replies lost"] += proxy.doom(self._chance)

        self._kinds += [lose_replies, lose_replies]

    def add_backends(self, url: str) -> None:
        """Connections can be ended by the server."""

        def end_backends() -> None:
            with suppress(psycopg.OperationalError), psycopg.connect(url) as connection:
                rows = connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    " AND random() < 0.3"
                ).fetchall()
                self.count["connections ended"] += len(rows)

        self._kinds.append(end_backends)

    def add_server(self, server: Server) -> None:
        """The server can crash, and come back."""

        def crash() -> None:
            server.stop(signal.SIGQUIT)
            time.sleep(self._chance.uniform(0, 2))
            server.start()
            self.count["server crashed"] += 1

        self._kinds.append(crash)

    def add_file(self, path: Path) -> None:
        """A foreign program can lock the file."""

        def lock() -> None:
            foreign = apsw.Connection(str(path))
            foreign.set_busy_timeout(60_000)
            foreign.execute("BEGIN IMMEDIATE")
            time.sleep(self._chance.uniform(0.1, 2))
            foreign.execute("ROLLBACK")
            foreign.close()
            self.count["file locked"] += 1

        self._kinds.append(lock)

    def add_disk(self, folder: Path) -> None:
        """The disk can be full for a while, as the workers see it."""

        def fill() -> None:
            (folder / FULL).touch()
            self._for_a_while(lambda: (folder / FULL).unlink(missing_ok=True), 2.0)
            self.count["disk full"] += 1

        self._kinds += [fill, fill]

    def add_migrations(self, url: str) -> None:
        """A newer release can bring its schema, while this one goes on working."""

        def migrate() -> None:
            with newer_schema(url, self.count["migrated"] + 1), closing(App(url)) as app:
                self.count["migrated"] += len(app.migrate())

        self._kinds.append(migrate)

    def strike(self) -> None:
        """One fault, or two at once."""
        self._revive()
        for _ in range(self._chance.choice([1, 1, 2])):
            self._chance.choice(self._kinds)()

    def end(self) -> None:
        """No more faults: everybody goes on."""
        self._end_what_passes()
        self._revive()

    def _revive(self) -> None:
        """A worker that finds no database when it starts, or no room, says so and ends; somebody
        starts it again."""
        for worker in list(self.workers):
            if worker.process.poll() is not None:
                assert could_not_start(worker), worker.log
                self._replace(worker)

    def kill_a_process(self) -> None:
        """Of one worker."""
        for child in self._one().children()[:1]:
            self._kill(child.pid)
            self.count["process killed"] += 1

    def kill_a_supervisor(self) -> None:
        """Its processes die with it, or notice."""
        worker = self._one()
        self._kill(worker.pid, [each.pid for each in worker.children()])
        worker.process.wait()
        self._replace(worker)
        self.count["supervisor killed"] += 1

    def kill_a_tree(self) -> None:
        """All of one worker."""
        worker = self._one()
        self._kill(worker.pid, [each.pid for each in worker.children()], tree=worker.tree())
        worker.process.wait()
        self._replace(worker)
        self.count["worker killed"] += 1

    def pause_a_process(self) -> None:
        """Of one worker: its supervisor notices."""
        for child in self._one().children()[:1]:
            self._pause([child.pid])
            self.count["process stopped"] += 1

    def pause_a_tree(self) -> None:
        """All of one worker, its scheduler too."""
        self._pause(self._one().tree())
        self.count["worker stopped"] += 1

    def drain(self) -> None:
        """One worker is told to stop, as in a deployment; another takes its place."""
        worker = self._one()
        self._end_what_passes()
        send(worker.pid, signal.SIGTERM)
        self.leaving.append(worker)
        self._replace(worker)
        self.count["worker drained"] += 1

    def take_from_the_living(self) -> None:
        """Somebody takes the jobs of a live worker back, as if it were dead. It does not know, and
        goes on: only its stale tokens keep it from finishing what others have by then."""
        store = self._observer.store
        for worker in store.run(store.workers()):
            held = [job_id for job_id, _ in store.run(store.held(worker.id))]
            jobs = [job for job in store.run(store.get(held)) if job is not None and job.worker]
            ends = [after_crash(job, "given up by mistake") for job in jobs]
            self.count["job taken from the living"] += sum(store.run(store.settle(ends)))

    def _one(self) -> WorkerProcess:
        return self._chance.choice(self.workers)

    def _replace(self, worker: WorkerProcess) -> None:
        self.workers[self.workers.index(worker)] = self._site.start(*OPTIONS, ready=False)

    def _kill(
        self, pid: int, below: list[int] | None = None, tree: list[int] | None = None
    ) -> None:
        lost = {pid, *(below or ())}
        store = self._observer.store
        ids = [each.id for each in store.run(store.workers()) if each.pid in lost]
        for each in tree or [pid]:
            send(each, signal.SIGKILL)
        self.losses += [Loss(worker=worker, at=datetime.now(UTC)) for worker in ids]

    def _pause(self, pids: list[int]) -> None:
        """Stop processes for a while. A timer lets them go on: whoever strikes may himself wait for
        a lock that they hold."""
        for pid in pids:
            send(pid, signal.SIGSTOP)
        self._for_a_while(lambda: _let_go_on(pids), self._longest_pause)

    def _for_a_while(self, end: Callable[[], None], longest: float) -> None:
        timer = threading.Timer(self._chance.uniform(0.2, longest), end)
        timer.daemon = True
        timer.start()
        self._passing.append((timer, end))

    def _end_what_passes(self) -> None:
        for timer, end in self._passing:
            timer.cancel()
            end()
        self._passing.clear()


def could_not_start(worker: WorkerProcess) -> bool:
    """Whether the worker has said that it found no database, or no room in it."""
    return NO_DATABASE in worker.log or NO_ROOM in worker.log


@contextmanager
def newer_schema(url: str, number: int) -> Iterator[None]:
    """This process knows a migration more than the workers do."""
    is_file = url.startswith("sqlite")
    known = sqlite_schema.MIGRATIONS if is_file else postgres_schema.MIGRATIONS
    table = "jobs" if is_file else "{schema}.jobs"
    text = f"ALTER TABLE {table} ADD COLUMN storm_{number} TEXT"
    last = known[-1]
    known.append(
        Migration(number=last.number + number, name=f"storm_{number}", text=text, oldest_release=0)
    )
    try:
        yield
    finally:
        known.pop()


def _let_go_on(pids: list[int]) -> None:
    for pid in reversed(pids):
        send(pid, signal.SIGCONT)
