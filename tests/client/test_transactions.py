"""Jobs in the caller's own transaction, in every supported library."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import apsw
import asyncpg  # type: ignore[import-untyped]
import psycopg
import psycopg2
import psycopg_pool
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from duly import (
    App,
    Emitted,
    Event,
    Job,
    Jobs,
    KeyConflict,
    Prepared,
    State,
    StoreError,
    Task,
    TransactionEnded,
    UnknownJob,
    WrongConnection,
)
from tests.client.driving import Hand
from tests.support.postgres import fresh_database

T = TypeVar("T")
NOTES = "CREATE TABLE IF NOT EXISTS notes (text text PRIMARY KEY)"


@dataclass
class Place:
    """A database with an app on it and a table of the caller's own."""

    app: App
    url: str

    def task(self) -> Task[[int], int]:
        """A task of the test's own."""

        @self.app.task(name=f"task_{uuid4().hex}")
        def work(value: int) -> int:
            return value

        return work

    def stored(self, task: Task[[int], int]) -> int:
        """How many jobs of the task anybody can see."""
        return len(self.app.list(task=task.name))

    def note_is_there(self, text: str) -> bool:
        """Whether the caller's own row can be seen."""
        with self.app.transaction() as connection:
            rows = connection.execute(f"SELECT text FROM notes WHERE text = '{text}'")
            return bool(list(rows))


@pytest.fixture(scope="module")
def postgres_place(postgres_server: str) -> Iterator[Place]:
    with fresh_database(postgres_server) as url:
        app = App(url)
        app.migrate()
        with psycopg.connect(url) as connection:
            connection.execute(NOTES)
        yield Place(app, url)
        app.close()


@pytest.fixture(scope="module")
def sqlite_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    app = App(f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'jobs.db'}")
    with app.transaction() as connection:
        connection.execute(NOTES)
    yield Place(app, app.config.url)
    app.close()


@pytest.fixture(scope="module")
def memory_place() -> Iterator[Place]:
    app = App("sqlite://")
    with app.transaction() as connection:
        connection.execute(NOTES)
    yield Place(app, app.config.url)
    app.close()


# The libraries, each as a transaction that commits at the end of a block or not at all


@dataclass
class Handle:
    """A connection in a transaction, whatever its library."""

    connection: object
    run: Callable[[str], Any]
    is_async: bool = False

    async def execute(self, text: str) -> None:
        """Run a statement of the caller's own."""
        answer = self.run(text)
        if self.is_async:
            await answer

    async def enqueue(self, task: Task[[int], int], value: int, **options: Any) -> Job[int]:
        """Submit on the connection."""
        chosen = task.using(connection=self.connection, **options)
        return await chosen.aenqueue(value) if self.is_async else chosen.enqueue(value)

    async def enqueue_many(self, app: App, jobs: list[Prepared[int]]) -> Jobs:
        """Submit several on the connection."""
        if self.is_async:
            return await app.aenqueue_many(jobs, connection=self.connection)
        return app.enqueue_many(jobs, connection=self.connection)

    async def emit(self, app: App, name: str, **options: Any) -> Emitted:
        """Emit an event on the connection."""
        if self.is_async:
            return await app.aemit(name, connection=self.connection, **options)
        return app.emit(name, connection=self.connection, **options)


Library = Callable[[Place], AbstractAsyncContextManager[Handle]]


@asynccontextmanager
async def with_psycopg(place: Place) -> AsyncIterator[Handle]:
    with psycopg.connect(place.url) as connection:
        yield Handle(connection, connection.execute)


@asynccontextmanager
async def with_psycopg_autocommit(place: Place) -> AsyncIterator[Handle]:
    with (
        psycopg.connect(place.url, autocommit=True) as connection,
        connection.transaction(),
    ):
        yield Handle(connection, connection.execute)


@asynccontextmanager
async def with_psycopg_odd_cursors(place: Place) -> AsyncIterator[Handle]:
    """A connection that makes client-side cursors and rows as dictionaries."""
    with psycopg.connect(
        place.url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
    ) as connection:
        yield Handle(connection, connection.execute)


@asynccontextmanager
async def with_psycopg_raw_cursors(place: Place) -> AsyncIterator[Handle]:
    with psycopg.connect(place.url, cursor_factory=psycopg.RawCursor) as connection:
        yield Handle(connection, connection.execute)


@asynccontextmanager
async def with_psycopg_pool(place: Place) -> AsyncIterator[Handle]:
    with (
        psycopg_pool.ConnectionPool(place.url, min_size=1, open=True) as pool,
        pool.connection() as connection,
    ):
        yield Handle(connection, connection.execute)


@asynccontextmanager
async def with_psycopg_async(place: Place) -> AsyncIterator[Handle]:
    async with await psycopg.AsyncConnection.connect(place.url) as connection:
        yield Handle(connection, connection.execute, is_async=True)


@asynccontextmanager
async def with_psycopg_async_raw_cursors(place: Place) -> AsyncIterator[Handle]:
    async with await psycopg.AsyncConnection.connect(
        place.url, row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor
    ) as connection:
        yield Handle(connection, connection.execute, is_async=True)


@asynccontextmanager
async def with_asyncpg(place: Place) -> AsyncIterator[Handle]:
    connection = await asyncpg.connect(place.url)
    try:
        async with connection.transaction():
            yield Handle(connection, connection.execute, is_async=True)
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(place: Place) -> AsyncIterator[Handle]:
    async with (
        asyncpg.create_pool(place.url, min_size=1, max_size=2) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield Handle(connection, connection.execute, is_async=True)


@asynccontextmanager
async def with_psycopg2(place: Place) -> AsyncIterator[Handle]:
    with closing(psycopg2.connect(place.url)) as connection, connection:
        yield Handle(connection, lambda text: connection.cursor().execute(text))


@asynccontextmanager
async def with_psycopg2_autocommit(place: Place) -> AsyncIterator[Handle]:
    """A `with` block of psycopg2 is a transaction, even on an autocommit connection."""
    with closing(psycopg2.connect(place.url)) as connection:
        connection.autocommit = True
        with connection:
            yield Handle(connection, lambda text: connection.cursor().execute(text))


def engine_url(place: Place, driver: str) -> str:
    return place.url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def engine(place: Place, driver: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(engine_url(place, driver), poolclass=NullPool)
    try:
        yield made
    finally:
        made.dispose()


def sqlalchemy_connection(driver: str) -> Library:
    @asynccontextmanager
    async def library(place: Place) -> AsyncIterator[Handle]:
        with engine(place, driver) as made, made.begin() as connection:
            yield Handle(connection, connection.exec_driver_sql)

    return library


def sqlalchemy_session(driver: str) -> Library:
    @asynccontextmanager
    async def library(place: Place) -> AsyncIterator[Handle]:
        with engine(place, driver) as made, Session(made) as session, session.begin():
            yield Handle(session, lambda text: session.execute(sqlalchemy.text(text)))

    return library


@asynccontextmanager
async def with_scoped_session(place: Place) -> AsyncIterator[Handle]:
    with engine(place, "psycopg") as made:
        session = scoped_session(sessionmaker(made))
        try:
            yield Handle(session, lambda text: session.execute(sqlalchemy.text(text)))
            session.commit()
        finally:
            session.remove()


def sqlalchemy_async_connection(driver: str) -> Library:
    @asynccontextmanager
    async def library(place: Place) -> AsyncIterator[Handle]:
        made = create_async_engine(engine_url(place, driver), poolclass=NullPool)
        async with made.begin() as connection:
            yield Handle(connection, connection.exec_driver_sql, is_async=True)

    return library


def sqlalchemy_async_session(driver: str) -> Library:
    @asynccontextmanager
    async def library(place: Place) -> AsyncIterator[Handle]:
        made = create_async_engine(engine_url(place, driver), poolclass=NullPool)
        async with AsyncSession(made) as session, session.begin():
            yield Handle(
                session, lambda text: session.execute(sqlalchemy.text(text)), is_async=True
            )

    return library


@asynccontextmanager
async def with_our_own(place: Place) -> AsyncIterator[Handle]:
    with place.app.transaction() as connection:
        yield Handle(connection, connection.execute)


LIBRARIES: dict[str, Library] = {
    "psycopg": with_psycopg,
    "psycopg autocommit": with_psycopg_autocommit,
    "psycopg odd cursors": with_psycopg_odd_cursors,
    "psycopg raw cursors": with_psycopg_raw_cursors,
    "psycopg pool": with_psycopg_pool,
    "psycopg async": with_psycopg_async,
    "psycopg async raw cursors": with_psycopg_async_raw_cursors,
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "psycopg2": with_psycopg2,
    "psycopg2 autocommit": with_psycopg2_autocommit,
    "Connection psycopg": sqlalchemy_connection("psycopg"),
    "Connection psycopg2": sqlalchemy_connection("psycopg2"),
    "Session psycopg": sqlalchemy_session("psycopg"),
    "Session psycopg2": sqlalchemy_session("psycopg2"),
    "scoped_session": with_scoped_session,
    "AsyncConnection asyncpg": sqlalchemy_async_connection("asyncpg"),
    "AsyncConnection psycopg": sqlalchemy_async_connection("psycopg"),
    "AsyncSession asyncpg": sqlalchemy_async_session("asyncpg"),
    "AsyncSession psycopg": sqlalchemy_async_session("psycopg"),
    "our own": with_our_own,
    "our own, SQLite": with_our_own,
    "our own, memory": with_our_own,
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    name = request.node.callspec.params["library"]
    kind = {"SQLite": "sqlite_place", "memory": "memory_place"}.get(
        name.rpartition(", ")[2], "postgres_place"
    )
    found: Place = request.getfixturevalue(kind)
    return found


class Regret(Exception):
    """The caller's own reason to roll back."""


@contextmanager
def regretted(block: AbstractContextManager[T]) -> Iterator[T]:
    """A block that ends in an error of the caller's own."""
    try:
        with block as value:
            yield value
            raise Regret
    except Regret:
        return


def test_a_commit_makes_job_and_row_visible(library: Library, place: Place) -> None:
    task, note = place.task(), uuid4().hex

    async def go() -> Job[int]:
        async with library(place) as handle:
            await handle.execute(f"INSERT INTO notes VALUES ('{note}')")
            job = await handle.enqueue(task, 1)
            assert job.created
            if handle.connection.__class__.__name__ != "SqliteTransaction":
                seen_by_others = place.app.store.run(place.app.store.get([job.id]))
                assert seen_by_others == [None]
            return job

    job = asyncio.run(go())
    assert place.app.get(job.id).record == job.record
    assert place.note_is_there(note)
    assert place.stored(task) == 1


def test_a_rollback_leaves_neither(library: Library, place: Place) -> None:
    task, note = place.task(), uuid4().hex
    jobs: list[Job[int]] = []

    async def go() -> None:
        async with library(place) as handle:
            await handle.execute(f"INSERT INTO notes VALUES ('{note}')")
            jobs.append(await handle.enqueue(task, 1, key="k"))
            jobs.extend(await handle.enqueue_many(place.app, [task.job(2), task.job(3)]))
            raise Regret

    with pytest.raises(Regret):
        asyncio.run(go())
    assert len(jobs) == 3
    assert place.stored(task) == 0
    assert not place.note_is_there(note)
    with pytest.raises(UnknownJob):
        place.app.get(jobs[0].id)
    assert task.using(key="k", key_policy="reject").enqueue(4).created


def test_an_event_is_part_of_the_transaction(library: Library, place: Place) -> None:
    name = f"order.{uuid4().hex}"

    @place.app.on(name)
    @place.app.task(name=f"task_{uuid4().hex}")
    def placed(event: Event) -> None: ...

    async def go(note: str, regret: bool) -> None:
        async with library(place) as handle:
            await handle.execute(f"INSERT INTO notes VALUES ('{note}')")
            first = await handle.emit(place.app, name, payload={"note": note}, id=name)
            second = await handle.emit(place.app, name, payload={"note": note}, id=name)
            assert (first.created, len(first.started)) == (True, 1)
            assert (second.created, second.started) == (False, ())
            if regret:
                raise Regret

    with pytest.raises(Regret):
        asyncio.run(go(uuid4().hex, regret=True))
    assert (place.app.events(name=name), place.app.list(task=placed.name)) == ([], [])
    note = uuid4().hex
    asyncio.run(go(note, regret=False))
    assert [event.payload for event in place.app.events(name=name)] == [{"note": note}]
    assert len(place.app.list(task=placed.name)) == 1


def test_keys_inside_and_a_conflict_that_harms_nothing(library: Library, place: Place) -> None:
    task, note = place.task(), uuid4().hex
    outside = task.using(key="outside").enqueue(1)
    task.using(key="taken").enqueue(1)

    async def go() -> Job[int]:
        async with library(place) as handle:
            await handle.execute(f"INSERT INTO notes VALUES ('{note}')")
            found = await handle.enqueue(task, 2, key="outside")
            assert (found.id, found.created) == (outside.id, False)
            assert found.record == outside.record

            replaced = await handle.enqueue(
                task, 3, key="outside", key_policy="replace", priority=7, tags=["a", "b"]
            )
            assert (replaced.id, replaced.record.arguments) == (outside.id, '{"value":3}')
            assert replaced.record.tags == ("a", "b")

            for key in ("outside", "outside"):
                with pytest.raises(KeyConflict) as caught:
                    await handle.enqueue(task, 4, key=key, key_policy="reject")
                assert caught.value.holder == outside.id
            # The batch replaces one job before it meets the other, and must undo that.
            replacing = task.using(key="outside", key_policy="replace")
            rejecting = task.using(key="taken", key_policy="reject")
            with pytest.raises(KeyConflict):
                await handle.enqueue_many(
                    place.app, [task.job(5), replacing.job(99), rejecting.job(6)]
                )

            inside = await handle.enqueue(task, 7, key="inside", key_policy="reject", key_window=60)
            assert inside.created
            again = await handle.enqueue(task, 8, key="inside")
            assert (again.id, again.created) == (inside.id, False)
            await handle.execute(f"INSERT INTO notes VALUES ('{note}, after')")
            return inside

    inside = asyncio.run(go())
    assert place.note_is_there(note)
    assert place.note_is_there(f"{note}, after")
    assert place.stored(task) == 3
    assert place.app.get(inside.id).record == inside.record
    assert place.app.get(outside.id).record.arguments == '{"value":3}'
    assert place.app.get(outside.id).record.priority == 7


def test_many_inside(library: Library, place: Place) -> None:
    task = place.task()

    async def go() -> Jobs:
        async with library(place) as handle:
            return await handle.enqueue_many(
                place.app, [task.using(tags=["t"]).job(value) for value in range(1000)]
            )

    jobs = asyncio.run(go())
    assert place.stored(task) == 100
    assert len(place.app.list(task=task.name, limit=2000)) == 1000
    assert place.app.get(jobs[999].id).record == jobs[999].record


def test_a_worker_is_woken_by_the_commit(postgres_place: Place) -> None:
    """The notification is part of the caller's transaction: nobody else could send it."""
    task = postgres_place.task()
    with psycopg.connect(postgres_place.url, autocommit=True) as listening:
        listening.execute("LISTEN duly_duly_workers")
        with psycopg.connect(postgres_place.url) as connection:
            task.using(connection=connection).enqueue(1)
            assert list(listening.notifies(timeout=0.1)) == []
        assert list(listening.notifies(timeout=20, stop_after=1))


# The wrong connection


def refused(place: Place, connection: object, *words: str, is_async: bool = False) -> None:
    """A submission on the connection is refused with these words, and nothing is stored."""
    task = place.task()
    chosen = task.using(connection=connection)

    def submit() -> None:
        if is_async:
            asyncio.run(chosen.aenqueue(1))
        else:
            chosen.enqueue(1)

    with pytest.raises(WrongConnection) as caught:
        submit()
    for word in words:
        assert word in str(caught.value)
    assert place.stored(task) == 0


def test_what_is_no_connection_is_refused(postgres_place: Place, sqlite_place: Place) -> None:
    for is_async in (False, True):
        for wrong in ("postgresql://", 5, object()):
            for place in (postgres_place, sqlite_place):
                refused(
                    place,
                    wrong,
                    type(wrong).__name__,
                    "cannot carry a job",
                    is_async=is_async,
                )


def test_a_connection_of_the_standard_library_is_refused(
    postgres_place: Place, sqlite_place: Place
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        refused(
            sqlite_place,
            connection,
            "sqlite3.Connection",
            "drops this library's locks",
            "with app.transaction() as connection",
        )
        refused(postgres_place, connection, "sqlite3.Connection", "psycopg")
    made = sqlalchemy.create_engine("sqlite://")
    with made.connect() as through:
        refused(postgres_place, through, "over sqlite3", "psycopg2")
        refused(sqlite_place, through, "app.transaction()")
    made.dispose()


def test_a_postgresql_connection_is_refused_by_sqlite(
    postgres_place: Place, sqlite_place: Place
) -> None:
    with psycopg.connect(postgres_place.url) as connection:
        refused(sqlite_place, connection, "the jobs are in SQLite")


def test_an_engine_is_no_connection(postgres_place: Place) -> None:
    with engine(postgres_place, "psycopg") as made:
        for factory in (made, sessionmaker(made)):
            for is_async in (False, True):
                refused(
                    postgres_place,
                    factory,
                    "is no transaction",
                    "Session",
                    is_async=is_async,
                )
    asynchronous = create_async_engine(engine_url(postgres_place, "psycopg"), poolclass=NullPool)
    for maker in (asynchronous, async_sessionmaker(asynchronous)):
        refused(
            postgres_place,
            maker,
            "is no transaction",
            "AsyncSession",
            is_async=True,
        )
    refused(postgres_place, asynchronous, "is no transaction")


def test_blocking_connections_are_refused_in_async_code(postgres_place: Place) -> None:
    with psycopg.connect(postgres_place.url) as connection:
        refused(
            postgres_place,
            connection,
            "would block the event loop",
            "AsyncConnection",
            is_async=True,
        )
    with closing(psycopg2.connect(postgres_place.url)) as other:
        refused(postgres_place, other, "would block", is_async=True)
    with engine(postgres_place, "psycopg") as made, Session(made) as session:
        refused(
            postgres_place,
            session,
            "would block the event loop",
            "AsyncSession",
            is_async=True,
        )


def test_asynchronous_connections_are_refused_in_blocking_code(postgres_place: Place) -> None:
    task = postgres_place.task()

    async def go() -> None:
        for library in (
            with_psycopg_async,
            with_asyncpg,
            with_asyncpg_pool,
            sqlalchemy_async_connection("asyncpg"),
            sqlalchemy_async_session("psycopg"),
        ):
            async with library(postgres_place) as handle:
                with pytest.raises(WrongConnection, match=r"asynchronous.*aenqueue"):
                    task.using(connection=handle.connection).enqueue(1)

    asyncio.run(go())
    assert postgres_place.stored(task) == 0


@pytest.mark.parametrize("name", [name for name in LIBRARIES if "our own" not in name])
def test_another_database_is_refused(name: str, postgres_place: Place, postgres_url: str) -> None:
    """Refused without Duly's tables, refused with another installation's, and still usable."""
    task = postgres_place.task()
    elsewhere = Place(App(postgres_url), postgres_url)

    async def refuse(reason: str) -> None:
        async with LIBRARIES[name](elsewhere) as handle:
            with pytest.raises(WrongConnection, match=reason):
                await handle.enqueue(task, 1)
            await handle.execute("SELECT 1")

    asyncio.run(refuse("has no schema 'duly'"))
    elsewhere.app.migrate()
    asyncio.run(refuse("another installation"))
    assert postgres_place.stored(task) == 0
    assert elsewhere.app.list() == []
    elsewhere.app.close()


def test_another_file_is_refused(sqlite_place: Place, tmp_path: Path) -> None:
    other = App(f"sqlite:///{tmp_path / 'other.db'}")
    memories = [App("sqlite://"), App("sqlite://")]
    for first, second in ((other, sqlite_place.app), (sqlite_place.app, other), memories):
        with first.transaction() as connection, pytest.raises(WrongConnection, match="jobs are in"):
            second.named("work", unchecked=True).using(connection=connection).enqueue()
        assert first.list(task="work") == []
        assert second.list(task="work") == []
    for app in (other, *memories):
        app.close()


def test_autocommit_outside_a_transaction_is_refused(postgres_place: Place) -> None:
    words = ("not in a transaction", "committed by itself")
    url = postgres_place.url
    with psycopg.connect(url, autocommit=True) as connection:
        refused(postgres_place, connection, *words)
    with closing(psycopg2.connect(url)) as older:
        older.autocommit = True
        refused(postgres_place, older, *words)
    for driver in ("psycopg", "psycopg2"):
        with engine(postgres_place, driver) as made:
            automatic = made.execution_options(isolation_level="AUTOCOMMIT")
            with automatic.connect() as through, Session(automatic) as session:
                refused(postgres_place, through, *words)
                refused(postgres_place, session, *words)


def test_autocommit_outside_a_transaction_is_refused_in_async_code(postgres_place: Place) -> None:
    task = postgres_place.task()

    async def refuse(connection: object) -> None:
        with pytest.raises(WrongConnection, match="not in a transaction"):
            await task.using(connection=connection).aenqueue(1)

    async def go() -> None:
        url = postgres_place.url
        plain = await asyncpg.connect(url)
        await refuse(plain)
        await plain.close()
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await refuse(connection)
        for driver in ("psycopg", "asyncpg"):
            made = create_async_engine(
                engine_url(postgres_place, driver),
                poolclass=NullPool,
                isolation_level="AUTOCOMMIT",
            )
            async with made.connect() as through:
                await refuse(through)

    asyncio.run(go())
    assert postgres_place.stored(task) == 0


# app.transaction()


@pytest.fixture(params=["postgres_place", "sqlite_place", "memory_place"])
def own_place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def test_a_submission_inside_joins_by_itself(own_place: Place) -> None:
    app, task, note = own_place.app, own_place.task(), uuid4().hex

    def deep_inside(value: int) -> Job[int]:
        return task.using(key="k").enqueue(value)

    with app.transaction() as connection:
        connection.execute(f"INSERT INTO notes VALUES ('{note}')")
        job = deep_inside(1)
        (many,) = app.enqueue_many([task.job(2)])
        by_name = app.enqueue(task.name, value=3)
        # Inside, everything is seen and done as it will be.
        assert app.get(job.id).record == job.record
        assert job.refresh().state is State.PENDING
        assert len(app.list(task=task.name)) == 3
        assert many.cancel() == "cancelled"
        assert many.refresh().state is State.CANCELLED
        assert [each for each in app.counts() if each.state is State.CANCELLED]
    assert app.get(by_name.id).state is State.PENDING
    assert app.get(many.id).state is State.CANCELLED
    assert own_place.note_is_there(note)

    with regretted(app.transaction()):
        lost = task.enqueue(5)
        job.cancel()
    with pytest.raises(UnknownJob):
        app.get(lost.id)
    assert job.refresh().state is State.PENDING


def test_async_submissions_inside_join_too(own_place: Place) -> None:
    app, task = own_place.app, own_place.task()

    async def deep_inside(value: int) -> Job[int]:
        return await task.aenqueue(value)

    async def go() -> None:
        with app.transaction():
            job = await deep_inside(1)
            assert (await app.aget(job.id)).record == job.record
            keyed = task.using(key="k")
            several = await asyncio.gather(
                *[keyed.aenqueue(value) for value in range(5)],
                *[task.aenqueue(value) for value in range(5)],
            )
            assert len({each.id for each in several}) == 6
        with regretted(app.transaction()):
            await deep_inside(2)

    asyncio.run(go())
    assert own_place.stored(task) == 7


def test_a_job_inside_a_block_is_kept_or_lost_with_a_nested_one(own_place: Place) -> None:
    app, task = own_place.app, own_place.task()
    with app.transaction() as outer:
        task.enqueue(1)
        with app.transaction() as inner:
            assert inner is outer
            task.enqueue(2)
        with regretted(app.transaction()):
            task.enqueue(3)
        with app.transaction(), app.transaction():
            task.enqueue(4)
    stored = {job.record.arguments for job in app.list(task=task.name)}
    assert stored == {f'{{"value":{value}}}' for value in (1, 2, 4)}


def test_what_outlives_the_block_is_on_its_own(own_place: Place) -> None:
    task = own_place.task()

    async def go() -> None:
        ended = asyncio.Event()

        async def later() -> None:
            await ended.wait()
            await task.aenqueue(1)

        with regretted(own_place.app.transaction()):
            background = asyncio.create_task(later())
        ended.set()
        await background

    asyncio.run(go())
    assert own_place.stored(task) == 1


def test_other_threads_are_not_part_of_the_block(postgres_place: Place) -> None:
    task = postgres_place.task()
    with ThreadPoolExecutor(1) as threads, postgres_place.app.transaction():
        threads.submit(task.enqueue, 1).result()
        assert len(postgres_place.app.list(task=task.name)) == 1


def test_other_threads_wait_for_the_transaction_on_sqlite(sqlite_place: Place) -> None:
    task = sqlite_place.task()
    started = threading.Barrier(9)

    def submit(value: int) -> Job[int]:
        started.wait()
        return task.enqueue(value)

    with ThreadPoolExecutor(8) as threads:
        with sqlite_place.app.transaction() as connection:
            first = task.enqueue(0)
            futures = [threads.submit(submit, value) for value in range(1, 9)]
            started.wait()
            connection.execute(f"INSERT INTO notes VALUES ('{uuid4().hex}')")
            assert not any(future.done() for future in futures)
        others = [future.result() for future in futures]
    assert sqlite_place.stored(task) == 9
    assert all(job.record.created_at >= first.record.created_at for job in others)


def test_the_callers_own_errors_stay_theirs(own_place: Place) -> None:
    task, note = own_place.task(), uuid4().hex

    def write_twice() -> None:
        with own_place.app.transaction() as connection:
            task.enqueue(1)
            connection.execute(f"INSERT INTO notes VALUES ('{note}')")
            connection.execute(f"INSERT INTO notes VALUES ('{note}')")

    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        write_twice()
    assert own_place.stored(task) == 0


def test_the_sqlite_connection_ends_with_its_block(sqlite_place: Place) -> None:
    task = sqlite_place.task()
    with sqlite_place.app.transaction() as connection:
        for statement in ("COMMIT", "ROLLBACK", "BEGIN", "ATTACH ':memory:' AS other"):
            with pytest.raises(StoreError, match="not yours to run"):
                connection.execute(statement)
        with pytest.raises(StoreError, match="not yours to run"):
            connection.executemany("ATTACH ? AS other", [(":memory:",)])
        assert connection.executemany(
            "INSERT INTO notes VALUES (?) RETURNING text", [(uuid4().hex,), (uuid4().hex,)]
        )
        assert connection.execute("SELECT :one", {"one": 1}) == [(1,)]
        task.enqueue(1)
    for use in (
        lambda: connection.execute("SELECT 1"),
        lambda: connection.executemany("SELECT ?", [(1,)]),
        lambda: task.using(connection=connection).enqueue(2),
        lambda: asyncio.run(task.using(connection=connection).aenqueue(2)),
    ):
        with pytest.raises(TransactionEnded, match="has ended"):
            use()
    assert sqlite_place.stored(task) == 1


def test_a_transaction_that_holds_the_writer_too_long_is_ended(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.sqlite.store.TRANSACTION_LIMIT", 0.2)
    app = App(sqlite_place.url)
    task = sqlite_place.task()
    named = app.named(task.name, unchecked=True)

    def hold_the_writer() -> None:
        with app.transaction() as connection:
            named.enqueue(value=1)
            # This waits for the writer, which the block holds until its time is over.
            task.enqueue(2)
            with pytest.raises(TransactionEnded):
                connection.execute("SELECT 1")
            with pytest.raises(TransactionEnded):
                named.enqueue(value=3)

    try:
        with pytest.raises(TransactionEnded, match="do slow work outside"):
            hold_the_writer()
        assert [job.record.arguments for job in app.list(task=task.name)] == ['{"value":2}']
    finally:
        app.close()


def test_coroutines_that_would_wait_for_each_other_are_told(
    sqlite_place: Place, memory_place: Place
) -> None:
    """A thread that waits for its own transaction would wait until that is ended by force."""
    for place in (sqlite_place, memory_place):
        app, task = place.app, place.task()

        async def go(app: App = app, task: Task[[int], int] = task) -> None:
            inside, may_end = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                with app.transaction():
                    inside.set()
                    await may_end.wait()
                    await task.aenqueue(1)

            holder = asyncio.create_task(hold())
            await inside.wait()
            with pytest.raises(StoreError, match="would wait for itself"):
                task.enqueue(2)
            with pytest.raises(StoreError, match=r"asyncio\.Lock"), app.transaction():
                pass
            patient = asyncio.create_task(task.aenqueue(3))
            may_end.set()
            await asyncio.gather(holder, patient)
            task.enqueue(4)

        asyncio.run(go())
        assert place.stored(task) == 3


def test_a_key_let_go_during_the_transaction_can_be_taken_in_it(postgres_place: Place) -> None:
    task = postgres_place.task()
    job = task.using(key="k").enqueue(1)
    hand = Hand(postgres_place.app)
    with postgres_place.app.transaction():
        assert not task.using(key="k").enqueue(2).created
        with ThreadPoolExecutor(1) as threads:
            threads.submit(hand.succeed, job).result()
        assert task.using(key="k").enqueue(3).created
