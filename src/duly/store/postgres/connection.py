"""Connections to PostgreSQL: a pool per process, errors in our own words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from duly.errors import (
    ConfigurationError,
    SchemaBehind,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from duly.store.operation import Row
from duly.store.postgres.arrays import adapt

Connection = psycopg.Connection[Row]

OLDEST_SERVER = 14
IDLE_BEFORE_CHECK = 5.0
CONNECT_TIMEOUT = 10.0
NO_TIME = 0.001

PLANNER_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}


class NoTurn(errors.LockNotAvailable):
    """A statement has waited for its turn in vain, and can do without one. (Where something else
    waits too long for a lock, the server is busy with something, and is not to be hurried.)"""


TRANSIENT = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.InvalidSqlStatementName,
    NoTurn,
)
"""The server rolled everything back and says that another try may go through."""

UNFIT = (
    errors.ReadOnlySqlTransaction,
    errors.InsufficientPrivilege,
    errors.InternalError_,
    errors.DataCorrupted,
    errors.IndexCorrupted,
)
"""The server refuses whatever it is asked to store: what was handed in is not to blame."""


def redacted(url: str) -> str:
    """The URL without its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The driver's words quote the URL, its password too.
        raise ConfigurationError(
            "the PostgreSQL URL cannot be read: are special characters in it percent-encoded? a "
            "right one is postgresql://user:p%40ssword@host:5432/database"
        ) from None
    host = parts.get("host", "localhost")
    port = f":{parts['port']}" if "port" in parts else ""
    user = f"{parts['user']}@" if "user" in parts else ""
    return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}"


class Pool(ConnectionPool[Connection]):
    """The driver's, which also lends without anybody waiting."""

    def at_hand(self) -> Connection | None:
        """A connection that is free, and was used a moment ago; None if there is none."""
        try:
            if self._pool and not _is_doubtful(self._pool[0]):
                return self.getconn(timeout=NO_TIME)
        except (IndexError, PoolTimeout):
            # Somebody else was quicker.
            pass
        return None


def make_pool(url: str, size: int) -> Pool:
    """A pool that connects when first asked."""
    return Pool(
        with_defaults(url),
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        check=_check_when_idle,
        timeout=CONNECT_TIMEOUT,
        reconnect_timeout=CONNECT_TIMEOUT,
        name="duly",
        kwargs={"autocommit": True},
    )


def with_defaults(url: str) -> str:
    """The connection string with what makes a broken network noticed in seconds."""
    given = conninfo_to_dict(url)
    defaults: dict[str, Any] = {
        "application_name": "duly",
        "connect_timeout": int(CONNECT_TIMEOUT),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    return make_conninfo(url, **{name: v for name, v in defaults.items() if name not in given})


def is_direct(connection: psycopg.Connection[Any]) -> bool:
    """Whether no pooler stands between: one makes up the process id it greets its clients with,
    and the server's own differs."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def configure(connection: psycopg.Connection[Any]) -> None:
    """Speed up arrays and ids; prepare statements on the server only on a direct connection.

    Statements are planned once: to plan a claim takes as long as to run it, and beside millions of
    jobs the server would do so each time. A plan from when a table was nearly empty has to serve
    the backlog that comes later, so it may not read whole tables. Where it must all the same, the
    server takes it for very costly, and would compile it for seconds.
    """
    adapt(connection)
    direct = is_direct(connection)
    connection.prepare_threshold = 5 if direct else None
    if direct:
        for setting, value in PLANNER_SETTINGS.items():
            connection.execute(f"SET {setting} = {value}".encode())
    connection.__dict__["duly_used"] = time.monotonic()


def restore_planner(connection: psycopg.Connection[Any]) -> None:
    """Give the statements of this transaction the server's own planner: they are the user's."""
    for setting in PLANNER_SETTINGS:
        connection.execute(f"SET LOCAL {setting} TO DEFAULT".encode())


def _check_when_idle(connection: psycopg.Connection[Any]) -> None:
    if _is_doubtful(connection):
        ConnectionPool.check_connection(connection)
    connection.__dict__["duly_used"] = time.monotonic()


def _is_doubtful(connection: psycopg.Connection[Any]) -> bool:
    """Whether it has not been used for so long that it may be gone."""
    used: float = connection.__dict__.get("duly_used", 0.0)
    return time.monotonic() - used > IDLE_BEFORE_CHECK


@contextmanager
def errors_explained(where: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn) as error:
        raise SchemaBehind(
            f"{where} has no such table or column yet: run `duly db migrate` (or app.migrate()); "
            f"the server says: {_first_line(error)}"
        ) from error
    except errors.DiskFull as error:
        raise StoreFull(
            f"the server at {where} has no room left: nothing of this call was stored, earlier "
            "work is kept; free some space and try again"
        ) from error
    except TRANSIENT as error:
        raise StoreError(f"{where} rolled this back: {_first_line(error)}; try again") from error
    except PoolTimeout as error:
        raise StoreUnavailable(
            f"no connection to {where} within {CONNECT_TIMEOUT:g} s: the server does not answer, "
            "or all connections of this process are in use; raise pool_size, or hold transactions "
            "for a shorter time"
        ) from error
    except UNFIT as error:
        raise StoreUnavailable(
            f"{where} takes no writes for now: {_first_line(error)}; nothing of this call was "
            "stored. Is it a standby, or are this user's rights gone?"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreUnavailable(f"{where} cannot be reached: {_first_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"{where}: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
