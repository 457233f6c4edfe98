"""SQLite files: where they may lie, forks, transactions that are held, noticing other processes."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from duly.errors import (
    ConfigurationError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TransactionEnded,
    WrongConnection,
)
from duly.model.job import JobRecord, State
from duly.model.query import JobFilter
from duly.store.operation import Wake
from duly.store.sqlite import connection as connecting
from duly.store.sqlite import store as store_module
from duly.store.sqlite.connection import connect, file_system_of
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.transaction import SqliteTransaction
from duly.store.sqlite.watch import FileWatch, announce
from tests.support.stores import Scene, draft, queued, until

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/share rw,relatime - nfs4 server:/export rw
31 30 0:41 / /mnt/share/local rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:43 / /srv rw - ext4 /dev/sdc rw
34 22 0:44 / /srv rw - fuse.sshfs host: rw
nonsense
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "duly.db"))
    yield store
    store.close()


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)


# Where the file lies


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/duly.db", "ext4"),
        ("/mnt/share/duly.db", "nfs4"),
        ("/mnt/share/deep/down/duly.db", "nfs4"),
        ("/mnt/shared/duly.db", "ext4"),
        ("/mnt/share/local/duly.db", "xfs"),
        ("/mnt/with space/duly.db", "cifs"),
        ("/srv/duly.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system_of(Path(path), mounts) == kind


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert file_system_of(Path("/x"), tmp_path / "missing") is None


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_network_file_systems_are_refused(
    kind: str, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "file_system_of", lambda path: kind)
    with pytest.raises(ConfigurationError, match=f"network file system .{kind}.*postgresql://"):
        store.run(store.counts())
    assert not Path(store.path).exists()


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "a" / "b" / "duly.db"))
    assert store.run(store.counts()) == []
    store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = SqliteStore(str(tmp_path / "file" / "duly.db"))
    with pytest.raises((StoreUnavailable, ConfigurationError, NotADirectoryError, FileExistsError)):
        store.run(store.counts())


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    with pytest.raises(StoreUnavailable, match="cannot open"):
        store.run(store.counts())


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "duly.db"
    path.write_bytes(b"this is a text, and long enough to be taken for a page\n" * 100)
    store = SqliteStore(str(path))
    with pytest.raises(ConfigurationError, match="not an SQLite database"):
        store.run(store.counts())
    assert path.read_bytes().startswith(b"this is a text")


forks = pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")


@forks
def test_a_file_that_may_not_be_written_to(scene: Scene, tmp_path: Path) -> None:
    scene.submit()
    scene.store.close()
    for each in tmp_path.iterdir():
        each.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    tmp_path.chmod(0o555)
    try:
        answer = _as_nobody(scene.submit, tmp_path)
    finally:
        tmp_path.chmod(0o755)
    assert answer.startswith("StoreUnavailable")
    assert "may not be written to" in answer or "cannot open" in answer


def _as_nobody(act: Callable[[], object], directory: Path) -> str:
    """What becomes of it as a user who is not root: root may write to everything."""
    for folder in (directory, *directory.parents):
        if os.getuid() == 0 and not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            act()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__} {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return answer.read()


# Forks


def _in_child(act: Callable[[], object]) -> int:
    """Fork, run, and answer with the exit code; 3 means an exception."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@forks
def test_a_forked_child_can_submit_and_the_parent_is_unharmed(scene: Scene) -> None:
    before = scene.submit()
    scene.counts()
    in_child = draft()

    def act() -> None:
        assert scene.get(before.id) == before
        scene.enqueue(in_child)
        scene.store.close()

    assert _in_child(act) == 0
    after = scene.submit()
    assert {job.id for job in _all(scene)} == {before.id, in_child.id, after.id}
    assert scene.take().id == before.id


@forks
def test_a_forked_child_outlives_its_parent_s_store(scene: Scene) -> None:
    """What a child commits after its parent closed the file is not lost."""
    scene.submit()
    closed_read, closed_write = os.pipe()
    ready_read, ready_write = os.pipe()
    early, late = draft(), draft()
    child = os.fork()
    if child == 0:
        try:
            scene.enqueue(early)
            os.write(ready_write, b"x")
            os.read(closed_read, 1)
            scene.enqueue(late)
        except BaseException:
            os._exit(3)
        os._exit(0)
    os.read(ready_read, 1)
    scene.store.close()
    os.write(closed_write, b"x")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert {early.id, late.id} <= {job.id for job in _all(scene)}
    with scene.store.transaction() as connection:
        assert connection.execute("PRAGMA integrity_check") == [("ok",)]


@forks
def test_children_forked_while_the_parent_writes_can_write(scene: Scene) -> None:
    stop = threading.Event()
    sent = []

    def keep_writing() -> None:
        while not stop.is_set():
            sent.append(scene.submit())

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        until(lambda: len(sent) > 5)
        mine = [draft() for _ in range(8)]
        for each in mine:
            assert _in_child(partial(scene.enqueue, each)) == 0
    finally:
        stop.set()
        writer.join()
    assert scene.counts() == {("default", State.PENDING): len(sent) + len(mine)}


@forks
def test_a_fork_inside_a_transaction_harms_nobody(scene: Scene) -> None:
    job = draft()

    def act() -> None:
        with pytest.raises(StoreError, match="forked inside a transaction"):
            scene.counts()

    with scene.store.transaction() as connection:
        scene.store.carry(connection).run(scene.store.enqueue([job], scene.now))
        assert _in_child(act) == 0
    assert scene.state(job.id) is State.PENDING
    assert _in_child(scene.counts) == 0


@forks
def test_a_watcher_goes_on_after_a_fork(scene: Scene, store: SqliteStore) -> None:
    scene.submit()
    watch = store.watch(Wake.WORKERS)
    assert _in_child(scene.submit) == 0
    assert watch.wait(5)
    until(lambda: not watch.wait(0.05))
    scene.submit()
    assert watch.wait(5)
    watch.close()


@forks
def test_memory_does_not_survive_a_fork() -> None:
    scene = Scene(SqliteStore(""))
    scene.submit()

    def act() -> None:
        with pytest.raises(StoreError, match="does not survive a fork"):
            scene.counts()

    assert _in_child(act) == 0
    assert scene.counts() == {("default", State.PENDING): 1}
    scene.store.close()


def _all(scene: Scene) -> list[JobRecord]:
    return scene.store.run(scene.store.find(JobFilter(), 1000))


# Transactions handed out


def test_a_transaction_held_for_too_long_is_rolled_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TRANSACTION_LIMIT", 0.2)
    late = draft()

    def act() -> None:
        with scene.store.transaction() as connection:
            scene.store.carry(connection).run(scene.store.enqueue([late], scene.now))
            until(lambda: not connection._lease.valid)
            connection.execute("SELECT 1")

    with pytest.raises(TransactionEnded):
        act()
    assert scene.store.run(scene.store.get([late.id])) == [None]
    assert scene.submit().state is State.PENDING


def test_a_statement_that_runs_for_too_long_is_interrupted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TRANSACTION_LIMIT", 0.2)
    endless = (
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    )

    def act() -> None:
        with scene.store.transaction() as connection:
            connection.execute(endless)

    with pytest.raises(TransactionEnded):
        act()
    assert scene.submit().state is State.PENDING


def test_a_transaction_is_ended_by_its_block_alone(scene: Scene) -> None:
    job = draft()
    with scene.store.transaction() as connection:
        scene.store.carry(connection).run(scene.store.enqueue([job], scene.now))
        for text in ("COMMIT", "ROLLBACK", "BEGIN", "END", "ATTACH ':memory:' AS other"):
            with pytest.raises(StoreError, match="not yours to run"):
                connection.execute(text)
        with pytest.raises(StoreError, match="not yours to run"):
            connection.executemany("COMMIT", [()])
    assert scene.state(job.id) is State.PENDING
    with pytest.raises(TransactionEnded):
        connection.execute("SELECT 1")
    with pytest.raises(TransactionEnded):
        scene.store.carry(connection).run(scene.store.enqueue([draft()], scene.now))


def test_a_transaction_of_another_file_is_refused(scene: Scene, tmp_path: Path) -> None:
    other = SqliteStore(str(tmp_path / "other.db"))
    with other.transaction() as connection, pytest.raises(WrongConnection, match=r"other\.db"):
        scene.store.carry(connection)
    other.close()


# A full disk


def _limit_pages(store: SqliteStore, pages: int) -> None:
    def act(connection: SqliteTransaction) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    with store.transaction() as connection:
        act(connection)


def _pages(store: SqliteStore) -> int:
    with store.transaction() as connection:
        count: int = connection.execute("PRAGMA page_count")[0][0]
        return count


def test_a_full_disk_is_named_and_nothing_accepted_is_lost(
    scene: Scene, store: SqliteStore
) -> None:
    kept = scene.submit_many(20)
    _limit_pages(store, _pages(store) + 10)
    accepted = []

    def fill() -> None:
        for _ in range(1000):
            accepted.append(scene.submit(arguments='"' + "x" * 20_000 + '"'))

    with pytest.raises(StoreFull, match="earlier work is kept"):
        fill()
    expected = len(kept) + len(accepted)
    assert scene.counts() == {("default", State.PENDING): expected}
    holder_refused = scene.get(kept[0].id)
    assert holder_refused == kept[0]
    _limit_pages(store, 1_000_000)
    scene.submit(arguments='"' + "x" * 20_000 + '"')
    assert scene.counts() == {("default", State.PENDING): expected + 1}
    assert len(scene.claim(scene.hire(), 5)) == 5


def test_of_a_shared_commit_only_what_did_not_fit_fails(scene: Scene, store: SqliteStore) -> None:
    scene.submit()
    _limit_pages(store, _pages(store) + 10)
    operations = [scene.store.enqueue([draft(arguments='"' + "x" * 100_000 + '"')])]
    operations += [scene.store.enqueue([draft()]) for _ in range(20)]
    with store.transaction():
        futures = [queued(store._open().writer, each) for each in operations]
    assert isinstance(futures[0].exception(), StoreFull)
    assert [each.exception() for each in futures[1:]] == [None] * 20
    assert scene.counts() == {("default", State.PENDING): 21}


def test_a_block_that_lost_its_transaction_does_not_commit_the_rest(
    scene: Scene, store: SqliteStore
) -> None:
    """SQLite ends a transaction by itself on some errors; what follows must not stand alone."""
    job = draft()

    def act() -> None:
        with store.transaction() as connection:
            connection._connection.authorizer = None
            connection._connection.execute("ROLLBACK")
            with pytest.raises(TransactionEnded):
                connection.execute("SELECT 1")
            with pytest.raises(TransactionEnded):
                connection.run(store.enqueue([job], scene.now))

    with pytest.raises(TransactionEnded, match="roll all of it back"):
        act()
    assert store.run(store.get([job.id])) == [None]


# Noticing other processes

_COMMIT = """
import sys
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import draft
store = SqliteStore(sys.argv[1])
store.run(store.counts())
print("ready", flush=True)
for _ in sys.stdin:
    store.run(store.enqueue([draft()]))
    print("done", flush=True)
store.close()
"""


def test_another_process_s_commit_is_noticed_promptly(scene: Scene, store: SqliteStore) -> None:
    scene.submit()
    command = [sys.executable, "-c", _COMMIT, store.path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        watch = store.watch(Wake.WORKERS)
        until(lambda: not watch.wait(0.05))
        waits = []
        for _ in range(20):
            asked = time.monotonic()
            other.stdin.write("go\n")
            other.stdin.flush()
            assert watch.wait(10)
            waits.append(time.monotonic() - asked)
            assert other.stdout.readline() == "done\n"
            until(lambda: not watch.wait(0.01))
        other.stdin.close()
        watch.close()
    assert sorted(waits)[10] < 0.5
    assert max(waits) < 5


def test_a_watcher_does_not_spin(scene: Scene, store: SqliteStore) -> None:
    scene.submit()
    watch = store.watch(Wake.WORKERS)
    assert isinstance(watch, FileWatch)
    looks = 0
    look = watch._data_version

    def counted() -> int:
        nonlocal looks
        looks += 1
        return look()

    watch._data_version = counted  # type: ignore[method-assign]
    scene.submit()
    until(lambda: not watch.wait(1.5))
    looks = 0
    used = time.process_time()
    assert not watch.wait(2.0)
    assert looks <= 30
    assert time.process_time() - used < 0.5
    watch.close()


def test_a_watcher_sleeps_through_commits_that_concern_nobody(
    scene: Scene, store: SqliteStore
) -> None:
    worker = scene.hire()
    watch = store.watch(Wake.WORKERS)
    assert isinstance(watch, FileWatch)
    until(lambda: not watch.wait(0.05))
    for _ in range(50):
        store.run(store.renew([worker], timedelta(seconds=60)))
    assert watch._notifier is not None
    assert not select.select([watch._notifier], [], [], 0)[0]
    scene.submit()
    assert select.select([watch._notifier], [], [], 60)[0]
    assert watch.wait(5)
    watch.close()


@pytest.mark.parametrize("wake", list(Wake))
def test_a_bell_is_heard_by_those_whom_it_is_for(
    scene: Scene, store: SqliteStore, wake: Wake
) -> None:
    scene.submit()
    watches = {each: store.watch(each) for each in Wake}
    for watch in watches.values():
        until(lambda watch=watch: not watch.wait(0.05))  # type: ignore[misc]
    announce(store.path, frozenset({wake}))
    bells = {each: watch.descriptor for each, watch in watches.items()}
    assert None not in bells.values()
    rung = select.select(list(filter(None, bells.values())), [], [], 0)[0]
    assert rung == [bells[wake]]
    for watch in watches.values():
        watch.close()


def test_the_bells_of_the_hot_path_leave_nothing_to_be_written(
    scene: Scene, store: SqliteStore
) -> None:
    """What has changed of a file would be synced with the next commit."""
    scene.submit()
    log = Path(f"{store.path}-wal")
    before = log.stat()
    announce(store.path, frozenset({Wake.WORKERS, Wake.WAITERS}))
    after = log.stat()
    assert (after.st_ctime_ns, after.st_mtime_ns) == (before.st_ctime_ns, before.st_mtime_ns)


def test_no_bell_drops_a_lock(scene: Scene, store: SqliteStore) -> None:
    """To close a descriptor of a file drops all locks that its process has on it."""
    scene.submit()

    def locks() -> list[str]:
        lines = Path("/proc/locks").read_text().splitlines()
        return sorted(line.split(": ", 1)[1] for line in lines if f" {os.getpid()} " in line)

    with store.transaction():
        before = locks()
        announce(store.path, frozenset(Wake))
        assert locks() == before
    assert len(before) >= 2


_TOUCHED = """
import os, signal, sys, threading
from duly.store.operation import Wake
from duly.store.sqlite.watch import announce

path, how = sys.argv[1:]
open(path + "-wal", "w").close()
wakes = frozenset({Wake.WORKERS, Wake.WAITERS})

def left_open():
    links = []
    for each in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            pass
    return sum(link.endswith("-wal") for link in links)

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

announce(path, wakes)
found = 0
if how == "interrupts":
    signal.signal(signal.SIGALRM, interrupt)
    for number in range(3000):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00002 + number % 50 * 0.000002)
            for _ in range(1000):
                announce(path, wakes)
        except Interrupt:
            pass
    found = left_open()
else:
    stopped = threading.Event()
    def ring():
        while not stopped.is_set():
            announce(path, wakes)
    ringing = threading.Thread(target=ring)
    ringing.start()
    for _ in range(300):
        child = os.fork()
        if child == 0:
            os._exit(left_open())
        found += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    stopped.set()
    ringing.join()
print(found)
"""


@pytest.mark.parametrize("how", ["interrupts", "forks"])
def test_nothing_comes_between_a_bell_and_its_end(tmp_path: Path, how: str) -> None:
    """An interrupt would leave the log open, and so would a fork, in the child."""
    command = [sys.executable, "-c", _TOUCHED, str(tmp_path / "duly.db"), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0\n"


def test_a_watcher_without_the_kernel_s_help_still_sees(
    scene: Scene, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.sqlite.watch._watch_file", lambda *_: None)
    scene.submit()
    watch = store.watch(Wake.WORKERS)
    assert not watch.wait(0.05)
    scene.submit()
    assert watch.wait(5)
    watch.close()


def test_a_lock_that_is_never_released_is_explained(
    scene: Scene, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit()
    blocker = connect(store.path)
    blocker.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(connecting, "PATIENCE", 0.2)
    with pytest.raises(StoreUnavailable, match="locked by another process"):
        scene.submit()
    blocker.execute("ROLLBACK")
    blocker.close()
    assert scene.submit().state is State.PENDING
