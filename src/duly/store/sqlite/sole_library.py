"""One copy of SQLite for a file that this process has open: ours.

A process cannot see its own locks, and loses those on a file when it closes any descriptor of it.
The standard library's `sqlite3` is another copy than ours, and takes itself for the only one: it
empties the index of the log, which we use, and when it is closed, it removes the log. All that we
wrote from then on would be lost.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import apsw

from duly.errors import StoreUnavailable, WrongConnection

File = tuple[int, int]
"""What tells one file from another: its device, and its number there."""

_ours: WeakKeyDictionary[apsw.Connection, File | None] = WeakKeyDictionary()


def refuse_a_file_in_other_hands(path: str) -> None:
    """StoreUnavailable if code of this process has the file open that is not our copy of SQLite,
    as far as the system tells."""
    file = _file(path)
    if file is None or any(_may_have(each, file) for each in apsw.connections()):
        return
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return
    if any(_file(int(each)) == file for each in descriptors):
        raise StoreUnavailable(
            f"{path} is open in this process, but not by Duly: {_REASON} Close what has it open (a "
            "connection of sqlite3, Django or SQLAlchemy?), then try again"
        )


def keep_for_ourselves(connection: apsw.Connection) -> None:
    """Refuse connections of `sqlite3` to its file, for as long as it is open."""
    _ours[connection] = _file(connection.filename)
    _listen()


_REASON = (
    "the standard library's sqlite3 and Duly's SQLite do not see each other's locks in one "
    "process, and committed work would be lost."
)


@cache
def _listen() -> None:
    sys.addaudithook(_refuse_strangers)


def _refuse_strangers(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect":
        path = _path_of(arguments[0])
        file = _file(path)
        if file is not None and any(_ours.get(each) == file for each in apsw.connections()):
            raise WrongConnection(
                f"{os.fsdecode(path)} is open in this process by Duly: {_REASON} Use `with "
                "app.transaction() as connection` to read and write, or another process"
            )


def _path_of(database: Any) -> str | bytes:
    """What `sqlite3.connect` was asked to open."""
    path: str | bytes = os.fspath(database)
    if isinstance(path, str) and path.startswith("file:"):
        name = path.removeprefix("file:").partition("?")[0].partition("#")[0]
        if name.startswith("//"):
            name = "/" + name[2:].partition("/")[2]
        return unquote(name)
    return path


def _may_have(connection: apsw.Connection, file: File) -> bool:
    """Whether a connection of our copy of SQLite, whosever it is, may have the file open."""
    try:
        return _file(connection.filename) == file
    except apsw.ConnectionClosedError:
        return False
    except apsw.ThreadingViolationError:
        # It is busy, and does not say.
        return True


def _file(path: str | bytes | int) -> File | None:
    """The file of that name or descriptor, if there is one."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
