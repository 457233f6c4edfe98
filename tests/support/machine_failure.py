"""What a failure of the machine would leave of an SQLite file: what was synced, nothing else."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from duly.store.sqlite import syncing

PARTS = ("", "-wal")


class Disk:
    """Notes each sync of a database and of its log: what they held when the sync began is safe when
    it has ended. `meanwhile` is called in between, for syncs that are not a part of a commit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._safe: dict[str, bytes] = {}
        self._noting = threading.Lock()
        self.meanwhile: Callable[[], None] = lambda: None
        self.syncs_of_database = 0
        self.own_syncs = 0
        self.fails = False
        """Whether syncs by SQLite fail now."""

    @contextmanager
    def syncing(self, part: str, holds: Callable[[], bytes]) -> Iterator[None]:
        """Around a sync of the database or its log."""
        self.syncs_of_database += part == ""
        held = holds()
        yield
        with self._noting:
            self._safe[part] = held

    def sync_log(self, descriptor: int) -> None:
        """What stands in the place of the store's own call."""
        log = Path(f"{self._path}-wal")
        assert os.path.samestat(os.fstat(descriptor), log.stat()), "it is another log"
        self.own_syncs += 1
        with self.syncing("-wal", log.read_bytes):
            os.fdatasync(descriptor)
            self.meanwhile()

    def part(self, name: str) -> str | None:
        """Which part of the database this file is."""
        return next((part for part in PARTS if name == f"{self._path}{part}"), None)

    def states(self) -> dict[UUID, str]:
        """The jobs that would be there, and the states that they would be in."""
        place = Path(tempfile.mkdtemp(dir=self._path.parent))
        with self._noting:
            for part, held in self._safe.items():
                (place / f"duly.db{part}").write_bytes(held)
        with closing(apsw.Connection(str(place / "duly.db"))) as connection:
            rows: Any = connection.execute(
                "SELECT id, state FROM jobs UNION ALL SELECT id, state FROM archive"
            )
            return {UUID(bytes=job_id): state for job_id, state in rows}


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._part = disk.part(path)

    def xSync(self, flags: int) -> None:  # noqa: N802
        """See apsw.VFSFile."""
        if self._part is None:
            super().xSync(flags)
            return
        if self._disk.fails:
            raise apsw.IOError("the disk fails")
        with self._disk.syncing(self._part, self._held):
            super().xSync(flags)

    def _held(self) -> bytes:
        # Not by another descriptor: to close that would drop SQLite's locks on the file.
        return self.xRead(self.xFileSize(), 0)


class _Files(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("noting", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """See apsw.VFS."""
        return _File(self._disk, name, flags)


@contextmanager
def noted(path: Path) -> Iterator[Disk]:
    """Within the block, what is done to this database and its log."""
    disk = Disk(path)
    files = _Files(disk)
    before = syncing.sync_log
    syncing.sync_log = disk.sync_log
    try:
        yield disk
    finally:
        syncing.sync_log = before
        files.unregister()
