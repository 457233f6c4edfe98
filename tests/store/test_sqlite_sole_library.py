"""Another copy of SQLite in the same process is kept from a file in use: nothing is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import sqlalchemy

from duly.errors import StoreUnavailable, WrongConnection
from duly.model.job import State
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import Scene

COUNT = "SELECT count(*) FROM jobs"
ELSEWHERE = f"""
import sqlite3
import sys
connection = sqlite3.connect(sys.argv[1])
print(*connection.execute("{COUNT}").fetchone())
connection.close()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "duly.db"))
    yield store
    store.close()


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    scene = Scene(store)
    scene.submit()
    return scene


def _count_elsewhere(path: str) -> int:
    """How many jobs another process sees, which then goes, and tidies up if it is the last."""
    command = [sys.executable, "-c", ELSEWHERE, path]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _link(path: str) -> str:
    os.symlink(path, path + ".link")
    return path + ".link"


NAMES: dict[str, Callable[[str], str | bytes | Path]] = {
    "str": str,
    "bytes": os.fsencode,
    "path": Path,
    "relative": os.path.relpath,
    "link": _link,
    "uri": "file:{}".format,
    "uri with options": "file://{}?mode=ro#here".format,
    "uri of this machine": "file://localhost{}".format,
    "escaped uri": lambda path: "file:" + path.replace("d", "%64"),
}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_by_a_look_with_sqlite3(
    name: str, scene: Scene, store: SqliteStore
) -> None:
    database = NAMES[name](store.path)
    with pytest.raises(WrongConnection, match=r"duly\.db.*app\.transaction\(\)"):
        sqlite3.connect(database, uri="uri" in name)
    assert _count_elsewhere(store.path) == 1
    scene.submit()
    assert scene.counts() == {("default", State.PENDING): 2}
    store.close()
    assert _count_elsewhere(store.path) == 2
    with closing(sqlite3.connect(database, uri="uri" in name)) as connection:
        assert connection.execute(COUNT).fetchone() == (2,)


def test_whatever_is_built_on_sqlite3_is_refused(scene: Scene, store: SqliteStore) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{store.path}")
    with pytest.raises(WrongConnection), engine.connect():
        pass
    engine.dispose()


def test_it_is_refused_as_long_as_anything_of_ours_has_the_file_open(
    scene: Scene, store: SqliteStore
) -> None:
    other = SqliteStore(store.path)
    other.migrate()
    store.close()
    with pytest.raises(WrongConnection):
        sqlite3.connect(store.path)
    other.close()
    sqlite3.connect(store.path).close()


@pytest.mark.usefixtures("scene")
def test_other_databases_are_open_to_it(tmp_path: Path) -> None:
    for name in (":memory:", "", str(tmp_path / "mine.db"), "file::memory:?cache=shared"):
        with closing(sqlite3.connect(name, uri=name.startswith("file:"))) as connection:
            connection.execute("CREATE TABLE mine (number INTEGER)")


def test_a_file_that_sqlite3_has_open_is_not_opened(scene: Scene, store: SqliteStore) -> None:
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS number")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"open in this process, but not by Duly"):
                scene.submit()
        connection.commit()
    scene.submit()
    with store.transaction() as ours:
        assert ours.execute("SELECT number FROM mine") == [(7,)]
    assert _count_elsewhere(store.path) == 2


def test_connections_of_our_own_copy_do_no_harm(scene: Scene, store: SqliteStore) -> None:
    store.close()
    connection = apsw.Connection(store.path)
    assert connection.execute(COUNT).get == 1
    scene.submit()
    store.close()
    assert connection.execute(COUNT).get == 2
    connection.close()
