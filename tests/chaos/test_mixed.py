"""A mixed load under random and combined faults, with a journal, and the checker at the end.

Jobs of every kind, priorities, keys, delays, retries, expiry, cancellation, transactional effects,
steps, events, children, flows and schedules; processes killed, stopped and drained, replies and
connections lost, files locked, a disk that is full, migrations; the clocks of worker processes are
wrong. What must hold is judged by what the client was told, by the journal
and by what the tasks noted outside of the store.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from uuid import UUID

import msgspec
import pytest

from duly import App, State
from duly.policy.states import LIVE
from duly.testing import Effect, History, check_history, read_history
from tests.chaos import artefacts
from tests.chaos.conftest import MakeFleet, Storm
from tests.chaos.faults import Faults, could_not_start
from tests.chaos.mixed_load import Client
from tests.chaos.mixed_tasks import SCHEDULES, TASKS, effects_in
from tests.conftest import ENGINES
from tests.support.cutting_proxy import CuttingProxy
from tests.support.fleet import LONG, Fleet, until
from tests.support.postgres import Server, fresh_database, own_server

LEASE = 5.0 if LONG else 15.0
LONGEST_PAUSE = 9.0 if LONG else 2.0
LONGEST_RESCUE = 120.0
PATIENCE = 900.0 if LONG else 240.0


class Database:
    """A database of an engine: how the fleet reaches it, and how an observer does."""

    def __init__(self, url: str, stack: ExitStack, server: Server | None = None) -> None:
        self.direct = url
        self._server = server
        self._proxy = None
        if not url.startswith("sqlite"):
            self._proxy = stack.enter_context(CuttingProxy(url))
        self.url = url if self._proxy is None else self._proxy.url

    def endanger(self, faults: Faults, folder: Path) -> None:
        """Say what may befall it."""
        faults.add_migrations(self.direct)
        if self._proxy is not None:
            faults.add_proxy(self._proxy)
            faults.add_backends(self.direct)
        else:
            faults.add_file(Path(self.direct.removeprefix("sqlite:///")))
            faults.add_disk(folder)
        if self._server is not None:
            faults.add_server(self._server)


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield Database(f"sqlite:///{tmp_path / 'jobs.db'}", stack)
        elif LONG:
            server = stack.enter_context(own_server({"max_connections": "100", "fsync": "off"}))
            url = stack.enter_context(fresh_database(server.url))
            yield Database(url, stack, server)
        else:
            yield Database(request.getfixturevalue("postgres_url"), stack)


@pytest.mark.timeout(7200 if LONG else 400)
def test_everything_at_once(fleet: MakeFleet, database: Database, storm: Storm) -> None:
    with _observed(database.direct) as observer:
        site = fleet(database.url, TASKS, lease=LEASE)
        with observer.transaction() as connection:
            connection.execute("CREATE TABLE ledger (job VARCHAR(36), token INTEGER)")
        client = Client(site, storm.chance)
        faults = Faults(site, observer, storm.chance, LONGEST_PAUSE)
        database.endanger(faults, site.folder)
        notes: list[str] = []
        try:
            _rage(client, faults, storm)
            settled_after = _settle(observer, faults)
            history = _history(site, observer, client, faults)
            notes += _report(history, client, faults, settled_after)
            print("\n".join(notes))
            violations = [str(each) for each in check_history(history)]
            print(f"{len(violations)} violations")
            notes += violations
            assert not violations, "\n".join(violations[:20])
            assert set(client.flows) <= {flow.id for flow in history.flows}
            _leave(faults)
        except BaseException:
            faults.end()
            place = artefacts.keep("mixed", storm.seed, site.folder, database.direct, notes)
            print(f"kept for inspection: {place}")
            raise


@contextmanager
def _observed(url: str) -> Iterator[App]:
    """An app with a way of its own to the database, which from now on keeps a journal."""
    app = App(url, journal="full")
    app.migrate()
    yield app
    app.close()


def _rage(client: Client, faults: Faults, storm: Storm) -> None:
    """Load and faults side by side."""
    deadline = time.monotonic() + storm.seconds
    batch = max(10, storm.jobs // 40)
    submitted = 0
    while time.monotonic() < deadline:
        if submitted < storm.jobs:
            client.act(batch)
            submitted += batch
            if LONG and storm.chance.random() < 0.2:
                client.be_hostile()
        time.sleep(storm.chance.uniform(0.1, 0.6))
        faults.strike()


def _settle(observer: App, faults: Faults) -> float:
    """Faults end, schedules are paused, and what is due is done; answers how long that took."""
    faults.end()
    began = time.monotonic()
    for name in SCHEDULES:
        observer.schedules.pause(name)

    def is_quiet() -> bool:
        return not sum(count.jobs for count in observer.counts() if count.state in LIVE)

    try:
        until(is_quiet, PATIENCE)
    except AssertionError as error:
        live = [job.record for job in observer.list(limit=100, state=list(LIVE))]
        raise AssertionError(f"{len(live)} jobs have not ended, such as {live[:3]}") from error
    return time.monotonic() - began


def _history(site: Fleet, observer: App, client: Client, faults: Faults) -> History:
    lines = (site.folder / "effects").read_text().rpartition("\n")[0].splitlines()
    with observer.transaction() as connection:
        rows = list(connection.execute("SELECT job, token FROM ledger"))
    paid = [Effect(job_id=UUID(job), token=token) for job, token in rows]
    history = read_history(
        observer.store,
        submissions=client.submissions,
        emissions=client.emissions,
        effects=[*effects_in(lines), *paid],
    )
    return msgspec.structs.replace(history, losses=faults.losses, taken_back_within=LONGEST_RESCUE)


def _report(history: History, client: Client, faults: Faults, settled: float) -> list[str]:
    """Figures, a line each."""
    states = Counter(job.state.value for job in history.jobs)
    faults_by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.count.items()))
    runs = Counter(effect.job_id for effect in history.effects or () if effect.step is None)
    repeated = sum(count - 1 for count in runs.values())
    taken_back = _taken_back(history, faults)
    back = (
        "none"
        if not taken_back
        else f"p50 {median(taken_back):.1f} s, most {max(taken_back):.1f} s"
    )
    told = ", ".join(f"{word.value} {count}" for word, count in sorted(client.told.items()))
    return [
        f"faults: {sum(faults.count.values())} ({faults_by_kind})",
        f"jobs: {len(history.jobs)} ({dict(states)}), {sum(runs.values())} runs, {repeated} again",
        f"journal: {len(history.journal)} changes; {len(history.attempts)} attempts; "
        f"{len(history.ticks)} ticks; {len(history.flows)} flows; {len(history.steps)} steps; "
        f"{len(history.events)} events",
        f"the client was told: {told}",
        f"{len(faults.losses)} processes killed, {len(taken_back)} jobs taken back: {back}",
        f"all was done {settled:.1f} s after the last fault",
    ]


def _taken_back(history: History, faults: Faults) -> list[float]:
    """How long each job of a process that was killed stayed with it."""
    lost = {loss.worker: loss.at for loss in faults.losses}
    held: dict[UUID, float] = {}
    found = []
    for entry in history.journal:
        since = held.pop(entry.job_id, None)
        if since is not None and entry.at.timestamp() > since:
            found.append(entry.at.timestamp() - since)
        if entry.after is State.RUNNING and entry.worker in lost:
            held[entry.job_id] = lost[entry.worker].timestamp()
    return found


def _leave(faults: Faults) -> None:
    """Whoever was told to stop did so in peace."""
    for worker in faults.workers:
        assert worker.terminate(timeout=PATIENCE) == 0, worker.log
    for worker in faults.leaving:
        code = worker.process.wait(PATIENCE)
        # Before it has begun, nobody is there to do it in peace.
        early = code == -signal.SIGTERM and not worker.log
        assert code == 0 or early or could_not_start(worker), worker.log
