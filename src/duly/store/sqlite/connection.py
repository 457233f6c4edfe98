"""Opening SQLite files: settings, patience with other processes, errors in our own words."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from duly.errors import ConfigurationError, StoreError, StoreFull, StoreUnavailable
from duly.store.operation import Row, Statement

T = TypeVar("T")

PATIENCE = 60.0
SHORTEST_NAP = 0.00005
FIRST_NAP = 0.0001
LONGEST_NAP = 0.016
CHECKPOINT = 4000
"""Pages in the log from which a commit takes them into the file. A job that comes alone writes
some ten: with SQLite's own 1000 one in a hundred waited for that. One hash table finds 4062."""
SOUND_SQLITE = (3, 51, 3)
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs"}
    | {"davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.davfs2"}
)

logger = logging.getLogger("duly.store")


class Patience:
    """A busy handler that waits in short, uneven naps, for at most PATIENCE seconds. Before the
    first of them, `before` is called. While it `waits` for nobody, it gives up at once.

    They stay short for the few milliseconds that one transaction of another process takes. The
    longer it has waited, the more others do, and the longer the naps: whoever holds the lock needs
    the processor.
    """

    def __init__(self, before: Callable[[], None] | None = None) -> None:
        self._before = before
        self._begun = 0.0
        self.waits = True

    def __call__(self, tries: int) -> bool:
        return self.waits and self.nap(tries)

    def nap(self, tries: int) -> bool:
        """Wait a little, after so many tries; False if that was long enough."""
        now = time.monotonic()
        if tries == 0:
            self._begun = now
            if self._before is not None:
                self._before()
        waited = now - self._begun
        if waited > PATIENCE:
            return False
        longest = min(LONGEST_NAP, FIRST_NAP + waited / 5)
        time.sleep(random.uniform(SHORTEST_NAP, longest))
        return True


def connect(path: str, read_only: bool = False) -> apsw.Connection:
    """A connection with our settings. An empty path is a private database in memory."""
    with errors_explained(path):
        if path:
            refuse_network_file_system(path)
        connection = patiently(lambda: apsw.Connection(path or ":memory:"))
        connection.set_busy_handler(Patience())
        if path:
            patiently(lambda: list(connection.execute("PRAGMA journal_mode = WAL")))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
        connection.execute("PRAGMA cache_size = -16384")
        # Savepoints keep what they may have to undo; on the disk that would be most of our writes.
        connection.execute("PRAGMA temp_store = MEMORY")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        return connection


def patiently(action: Callable[[], T]) -> T:
    """Repeat an action for as long as others are busy: some calls ask no busy handler."""
    patience = Patience()
    tries = 0
    while True:
        try:
            return action()
        except apsw.BusyError:
            if not patience(tries):
                raise
            tries += 1


def execute(connection: apsw.Connection, statement: Statement) -> list[Row]:
    """Run one statement and fetch its rows."""
    if statement.many:
        return list(connection.executemany(statement.text, statement.parameters))
    rows = list(connection.execute(statement.text, statement.parameters))
    return [(connection.changes(),)] if statement.counted else rows


class errors_explained:  # noqa: N801
    """A context that turns the engine's errors into ours."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, apsw.Error):
            raise _explained(self._path or "memory", error) from error


def _explained(where: str, error: apsw.Error) -> StoreError | ConfigurationError:
    if isinstance(error, apsw.FullError):
        return StoreFull(
            f"no room left for {where}: nothing of this call was stored, earlier work is kept; "
            "free some space and try again"
        )
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{where} has been locked by another process for more than {PATIENCE:g} s: "
            "look for a transaction that was left open"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(
            f"cannot open {where}: {error}; does its folder exist, and may it be written to?"
        )
    if isinstance(error, apsw.NotADBError):
        return ConfigurationError(f"{where} is a file, but not an SQLite database")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(f"{where} may not be written to by this user")
    if isinstance(error, apsw.IOError | apsw.CorruptError | apsw.ProtocolError | apsw.NoMemError):
        return StoreUnavailable(f"SQLite, {where}: {type(error).__name__}: {error}")
    return StoreError(f"SQLite, {where}: {type(error).__name__}: {error}")


def refuse_network_file_system(path: str) -> None:
    """Refuse files on network file systems, where SQLite's locks and shared memory fail."""
    kind = file_system_of(Path(path))
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite loses data when several "
            "machines write; use a local disk, or postgresql:// for several machines"
        )


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the file system that holds `path`; None when this system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = path.absolute()
    best: tuple[int, str] | None = None
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = Path(fields[4].replace("\\040", " "))
        # The last of several mounts on one point hides the others.
        if target.is_relative_to(mount) and (best is None or len(mount.parts) >= best[0]):
            best = (len(mount.parts), after.split(" ")[0])
    return None if best is None else best[1]


def warn_when_unsound() -> None:
    """Warn when the linked SQLite carries the WAL-reset bug."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SOUND_SQLITE:
        logger.warning(
            "SQLite %s can corrupt a WAL database with several writers; use 3.51.3 or later "
            "(pip install --upgrade apsw)",
            version,
        )
