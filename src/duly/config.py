"""Settings: one frozen Config, and where each value came from.

Flags win over the environment (DULY_*), that over duly.toml or [tool.duly] in pyproject.toml, that
over the defaults.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from duly.errors import ConfigurationError

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_SIZE_UNITS = {"": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "KB": 10**3, "MB": 10**6}


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting. `origins` tells where each value came from."""

    url: str = "sqlite:///duly.db"
    """Where jobs are kept: sqlite:///file.db, sqlite:// (in memory), postgresql://..."""

    schema: str = "duly"
    """The PostgreSQL schema that holds Duly's tables."""

    listen_url: str | None = None
    """A direct URL for notifications, when `url` leads to a connection pooler."""

    pool_size: int = 10
    """The most connections to PostgreSQL that one process opens."""

    payload_limit: int = 1024 * 1024
    """The most bytes that a job's arguments, its metadata or its result may take."""

    origins: Mapping[str, str] = field(default_factory=dict, compare=False)


def load(
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Config:
    """Put the settings together; `given` are flags or arguments, None meaning not given."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = dict.fromkeys(names(), "default")
    for origin, found in (
        *_from_files(directory or Path.cwd()),
        ("environment", _from_environment(environment)),
        ("argument", {name: value for name, value in (given or {}).items() if value is not None}),
    ):
        for name, value in found.items():
            if name not in origins:
                raise ConfigurationError(
                    f"{origin}: unknown setting {name!r}; known are {', '.join(names())}"
                )
            values[name] = _checked(name, value, origin)
            origins[name] = f"DULY_{name.upper()}" if origin == "environment" else origin
    return Config(**values, origins=origins)


def names() -> list[str]:
    """The names of all settings."""
    return [each.name for each in fields(Config) if each.name != "origins"]


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {f"DULY_{name.upper()}": name for name in names()}
    return {known[key]: value for key, value in environment.items() if key in known and value}


def _from_files(directory: Path) -> list[tuple[str, dict[str, Any]]]:
    found = []
    pyproject = directory / "pyproject.toml"
    if pyproject.is_file():
        table = _read(pyproject).get("tool", {}).get("duly")
        if table is not None:
            found.append(("pyproject.toml", table))
    own = directory / "duly.toml"
    if own.is_file():
        found.append(("duly.toml", _read(own)))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name}: {error}") from error


def _checked(name: str, value: Any, origin: str) -> Any:
    where = f"{origin}: setting {name}"
    if name in ("pool_size", "payload_limit"):
        return _size(value, where)
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} must be text; got {value!r}")
    if name == "schema" and not _SCHEMA_NAME.fullmatch(value):
        raise ConfigurationError(
            f"{where} must be a plain lower-case name such as 'duly' or 'jobs_eu'; got {value!r}"
        )
    if name == "url" and not value.startswith(("sqlite://", "postgresql://", "postgres://")):
        raise ConfigurationError(
            f"{where} must begin with sqlite:// or postgresql://, such as 'sqlite:///duly.db' or "
            f"'postgresql://user@host/database'; got {value!r}"
        )
    return value


def _size(value: Any, where: str) -> int:
    match = re.fullmatch(r"(\d+) ?([A-Za-z]*)", str(value))
    if match is None or match[2].upper() not in _SIZE_UNITS or int(match[1]) == 0:
        raise ConfigurationError(
            f"{where} must be a whole number above zero, such as 10 or '4MiB'; got {value!r}"
        )
    return int(match[1]) * _SIZE_UNITS[match[2].upper()]
