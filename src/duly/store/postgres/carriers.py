"""The caller's own connection, of whatever library, as a carrier of operations.

Supported: psycopg (sync and async), psycopg2, asyncpg, and SQLAlchemy's Connection, Session,
AsyncConnection and AsyncSession over any of these. Only psycopg is imported here: a connection
that is handed in has brought its library along.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import tuple_row

from duly.errors import WrongConnection
from duly.store.operation import Operation, Row, Statement, drive, drive_async
from duly.store.postgres.exchange import numbered
from duly.store.postgres.watch import channel

T = TypeVar("T")
Execute = Callable[[Statement], list[Row]]
AsyncExecute = Callable[[Statement], Awaitable[list[Row]]]

KINDS = (
    "a psycopg connection, an asyncpg or psycopg2 connection, or a SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession"
)
_ASYNCHRONOUS = ("AsyncSession", "AsyncConnection", "async_scoped_session")
_PSYCOPG2_IDLE = 0
_SAVE = Statement("SAVEPOINT duly")
_UNDO = Statement("ROLLBACK TO SAVEPOINT duly")
_KEEP = Statement("RELEASE SAVEPOINT duly")
_SAVE_NESTED = Statement("SAVEPOINT duly_nested")
_UNDO_NESTED = Statement("ROLLBACK TO SAVEPOINT duly_nested")
_KEEP_NESTED = Statement("RELEASE SAVEPOINT duly_nested")
_recognised: WeakKeyDictionary[Any, UUID] = WeakKeyDictionary()


class Carrier:
    """A blocking connection that carries operations inside its owner's transaction."""

    def __init__(self, execute: Execute, schema: str) -> None:
        self._execute = execute
        self._schema = schema
        self._in_use = threading.Lock()

    def run(self, operation: Operation[T]) -> T:
        """See Transaction.run. A conflict of keys leaves the caller's transaction usable."""
        with self._in_use:
            if not operation.atomic:
                result = drive(operation.start(), self._execute)
            else:
                self._execute(_SAVE)
                try:
                    result = drive(operation.start(), self._execute)
                except Exception:
                    self._execute(_UNDO)
                    self._execute(_KEEP)
                    raise
                self._execute(_KEEP)
            for statement in _notifications(operation, self._schema):
                self._execute(statement)
            return result

    @contextmanager
    def nested(self) -> Iterator[None]:
        """See Transaction.nested."""
        self._execute(_SAVE_NESTED)
        try:
            yield
        except BaseException:
            self._execute(_UNDO_NESTED)
            self._execute(_KEEP_NESTED)
            raise
        self._execute(_KEEP_NESTED)


class AsyncCarrier:
    """An asynchronous connection that carries operations inside its owner's transaction."""

    def __init__(self, execute: AsyncExecute, schema: str) -> None:
        self._execute = execute
        self._schema = schema

    async def arun(self, operation: Operation[T]) -> T:
        """See AsyncTransaction.arun. A conflict of keys leaves the caller's transaction usable."""
        if not operation.atomic:
            result = await drive_async(operation.start(), self._execute)
        else:
            await self._execute(_SAVE)
            try:
                result = await drive_async(operation.start(), self._execute)
            except Exception:
                await self._execute(_UNDO)
                await self._execute(_KEEP)
                raise
            await self._execute(_KEEP)
        for statement in _notifications(operation, self._schema):
            await self._execute(statement)
        return result


def own(connection: Any, schema: str) -> Carrier:
    """A connection that the store itself handed out."""
    return Carrier(_psycopg(connection), schema)


def carry(connection: object, schema: str, where: str, installation: UUID) -> Carrier:
    """Wrap a blocking connection to the database with this installation, or refuse it."""
    given = connection
    library = _library(connection)
    if library == "sqlalchemy":
        connection = _unwrap_sqlalchemy(connection)
        library = _library(connection)
    if library == "psycopg" and _is_a(connection, "Connection"):
        _require_transaction(given, not _idle_autocommit_psycopg(connection))
        execute = _psycopg(connection)
    elif library == "psycopg2" and _is_a(connection, "connection"):
        _require_transaction(given, not _idle_autocommit_psycopg2(connection))
        execute = _psycopg2(connection)
    else:
        _refuse(given, connection, where, asynchronous=False)
    if _recognised_as(connection) != installation:
        _require_installation(given, execute(_there(schema)), where, schema)
        rows = execute(_identity(schema))
        _require_same(given, rows, installation, where)
        _remember(connection, installation)
    return Carrier(execute, schema)


async def acarry(connection: object, schema: str, where: str, installation: UUID) -> AsyncCarrier:
    """Wrap an asynchronous connection to the database with this installation, or refuse it."""
    given = connection
    library = _library(connection)
    if library == "sqlalchemy":
        connection = await _unwrap_sqlalchemy_async(connection)
        library = _library(connection)
    if library == "psycopg" and _is_a(connection, "AsyncConnection"):
        _require_transaction(given, not _idle_autocommit_psycopg(connection))
        execute = _psycopg_async(connection)
    elif library == "asyncpg" and hasattr(connection, "is_in_transaction"):
        inside: Any = connection
        _require_transaction(given, inside.is_in_transaction())
        execute = _asyncpg(connection)
    else:
        _refuse(given, connection, where, asynchronous=True)
    if _recognised_as(connection) != installation:
        _require_installation(given, await execute(_there(schema)), where, schema)
        rows = await execute(_identity(schema))
        _require_same(given, rows, installation, where)
        _remember(connection, installation)
    return AsyncCarrier(execute, schema)


def _psycopg(connection: Any) -> Execute:
    def execute(statement: Statement) -> list[Row]:
        # Not connection.cursor(): the connection may be set to another kind of cursor or row.
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement.text, statement.parameters, binary=True)
            return cursor.fetchall() if cursor.description is not None else []

    return execute


def _psycopg_async(connection: Any) -> AsyncExecute:
    async def execute(statement: Statement) -> list[Row]:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.text, statement.parameters, binary=True)
            return await cursor.fetchall() if cursor.description is not None else []

    return execute


def _psycopg2(connection: Any) -> Execute:
    from psycopg2 import extensions, extras

    register_uuid: Callable[..., Any] = extras.register_uuid

    def execute(statement: Statement) -> list[Row]:
        with connection.cursor(cursor_factory=extensions.cursor) as cursor:
            register_uuid(conn_or_curs=cursor)
            cursor.execute(statement.text, statement.parameters)
            return list(cursor.fetchall()) if cursor.description is not None else []

    return execute


def _asyncpg(connection: Any) -> AsyncExecute:
    async def execute(statement: Statement) -> list[Row]:
        text, names = numbered(statement.text)
        values = [statement.parameters[name] for name in names]
        return [tuple(row) for row in await connection.fetch(text, *values)]

    return execute


def _unwrap_sqlalchemy(connection: Any) -> Any:
    """The driver's connection inside SQLAlchemy's, with SQLAlchemy's transaction begun."""
    if _kind(connection) in _ASYNCHRONOUS:
        raise WrongConnection(
            f"a SQLAlchemy {_kind(connection)} is asynchronous: use `await ...aenqueue(...)`"
        )
    if not _has_transaction(connection):
        raise WrongConnection(
            f"a SQLAlchemy {_kind(connection)} is no transaction: pass a Session or Connection"
        )
    if not hasattr(connection, "exec_driver_sql"):
        connection = connection.connection()
    connection.exec_driver_sql("SELECT 1")
    return connection.connection.driver_connection


async def _unwrap_sqlalchemy_async(connection: Any) -> Any:
    if not _has_transaction(connection):
        raise WrongConnection(
            f"a SQLAlchemy {_kind(connection)} is no transaction: pass an AsyncSession or "
            "AsyncConnection"
        )
    if _kind(connection) not in _ASYNCHRONOUS:
        raise WrongConnection(
            f"a SQLAlchemy {_kind(connection)} would block the event loop: pass an AsyncSession or "
            "AsyncConnection, or use `enqueue` outside the loop"
        )
    if not hasattr(connection, "exec_driver_sql"):
        connection = await connection.connection()
    await connection.exec_driver_sql("SELECT 1")
    return (await connection.get_raw_connection()).driver_connection


def _has_transaction(connection: object) -> bool:
    """Whether it is one of SQLAlchemy's connections or sessions, not an engine or a factory."""
    return hasattr(connection, "exec_driver_sql") or hasattr(connection, "connection")


def _there(schema: str) -> Statement:
    return Statement(
        "SELECT current_database(), to_regclass(%(table)s)::text",
        {"table": f'"{schema}".installation'},
    )


def _identity(schema: str) -> Statement:
    return Statement(f'SELECT id FROM "{schema}".installation')


def _require_transaction(connection: object, inside: bool) -> None:
    if not inside:
        raise WrongConnection(
            f"the {_described(connection)} is not in a transaction, so the job would be committed "
            "by itself: begin one (`with connection.transaction():`), or leave `connection` out"
        )


def _require_installation(connection: object, rows: list[Row], where: str, schema: str) -> None:
    database, table = rows[0]
    if table is None:
        raise WrongConnection(
            f"the {_described(connection)} is connected to database {database!r}, which has no "
            f"schema {schema!r} of Duly's; the app's jobs are in {where}"
        )


def _require_same(connection: object, rows: list[Row], installation: UUID, where: str) -> None:
    if not rows or rows[0][0] != installation:
        raise WrongConnection(
            f"the {_described(connection)} is connected to another installation of Duly than the "
            f"app, whose jobs are in {where}"
        )


def _refuse(given: object, connection: object, where: str, asynchronous: bool) -> NoReturn:
    library, kind = _library(connection), _kind(connection)
    if given is not connection:
        wanted = "asyncpg or psycopg" if asynchronous else "psycopg or psycopg2"
        raise WrongConnection(
            f"a SQLAlchemy {_kind(given)} over {library} cannot carry a job into {where}: its "
            f"engine must use {wanted}"
        )
    if asynchronous and library in ("psycopg", "psycopg2"):
        raise WrongConnection(
            f"a {_described(connection)} would block the event loop: pass an AsyncConnection, or "
            "use `enqueue` outside the loop"
        )
    if not asynchronous and (library == "asyncpg" or kind == "AsyncConnection"):
        raise WrongConnection(
            f"a {_described(connection)} is asynchronous: use `await ...aenqueue(...)`"
        )
    raise WrongConnection(
        f"a {_described(connection)} cannot carry a job into {where}: pass {KINDS}"
    )


def _notifications(operation: Operation[Any], schema: str) -> list[Statement]:
    return [
        Statement("SELECT pg_notify(%(channel)s, '')", {"channel": channel(schema, wake)})
        for wake in operation.wakes
    ]


def _idle_autocommit_psycopg(connection: Any) -> bool:
    return bool(connection.autocommit) and connection.info.transaction_status.name == "IDLE"


def _idle_autocommit_psycopg2(connection: Any) -> bool:
    if not connection.autocommit:
        return False
    # In a `with connection:` block the transaction begins with the first statement.
    _psycopg2(connection)(Statement("SELECT 1"))
    return bool(connection.info.transaction_status == _PSYCOPG2_IDLE)


def _recognised_as(connection: Any) -> UUID | None:
    try:
        return _recognised.get(connection)
    except TypeError:
        return None


def _remember(connection: Any, installation: UUID) -> None:
    try:
        _recognised[connection] = installation
    except TypeError:
        # Some libraries' connections cannot be referred to weakly; these are asked every time.
        return


def _library(connection: object) -> str:
    for kind in type(connection).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("sqlalchemy", "psycopg", "psycopg2", "asyncpg"):
            return library
    return type(connection).__module__.partition(".")[0]


def _kind(connection: object) -> str:
    for kind in type(connection).__mro__:
        if kind.__module__.partition(".")[0] in ("sqlalchemy", "psycopg", "psycopg2", "asyncpg"):
            return kind.__name__
    return type(connection).__name__


def _is_a(connection: object, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(connection).__mro__)


def _described(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
