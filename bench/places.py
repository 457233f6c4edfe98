"""Where the databases of a run lie: on a real disk, for durable writes must be durable."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from duly.store.sqlite.connection import file_system_of

ENVIRONMENT_VARIABLE = "DULY_BENCH_DIRECTORY"
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


class NoDisk(Exception):
    """No place was found that is on a disk."""


def on_disk() -> Path:
    """The first of $DULY_BENCH_DIRECTORY, the folder for temporary files, and /var/tmp that is on
    a disk and may be written to."""
    wanted = os.environ.get(ENVIRONMENT_VARIABLE)
    places = [wanted] if wanted else [tempfile.gettempdir(), "/tmp", "/var/tmp"]
    for place in map(Path, dict.fromkeys(places)):
        if os.access(place, os.W_OK | os.X_OK) and file_system_of(place) not in _IN_MEMORY:
            return place
    raise NoDisk(
        f"none of {', '.join(places)} is a writable folder on a disk (in memory nothing is "
        f"durable, so its figures mean nothing): name one in {ENVIRONMENT_VARIABLE}"
    )
