"""From a URL to its store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from duly.config import Config
from duly.errors import ConfigurationError

if TYPE_CHECKING:
    from duly.store.protocol import Store


def open_store(config: Config) -> Store:
    """The store that the configured URL names. Nothing is connected yet."""
    scheme = config.url.partition("://")[0]
    if scheme == "sqlite":
        from duly.store.sqlite.store import SqliteStore

        return SqliteStore(_path(config.url), config.journal)
    try:
        from duly.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigurationError(
            "postgresql:// needs psycopg 3: pip install 'duly[postgres]'"
        ) from error
    return PostgresStore(
        config.url, config.schema, config.listen_url, config.pool_size, config.journal
    )


def _path(url: str) -> str:
    """The file of an SQLite URL, in the habit of three slashes for a relative path; empty for a
    database in memory.

    It is made absolute now: files are opened later, and again after a fork, when the working
    directory may be another. Links are followed, as SQLite does to name the files beside it.
    """
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or parts.path == "/":
        raise ConfigurationError(
            f"{url!r}: an SQLite URL is sqlite:///relative.db, sqlite:////absolute.db, or "
            "sqlite:// for a database in memory"
        )
    path = unquote(parts.path.removeprefix("/"))
    return os.path.realpath(path) if path not in ("", ":memory:") else ""
