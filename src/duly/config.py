"""Settings: one frozen Config, and where each value came from.

Flags win over the environment (DULY_*), that over duly.toml or [tool.duly] in pyproject.toml, that
over the defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from duly.errors import ConfigurationError, InvalidInput
from duly.model.journal import Journal
from duly.policy import options
from duly.policy.duration import parse as parse_duration
from duly.policy.retention import KEPT, Keep, RetentionPolicy

_POSTGRESQL = ("postgresql://", "postgres://")
_SCHEMA_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,39}")
_SIZE_UNITS = {"": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "KB": 10**3, "MB": 10**6}


KEEP_AGES = ("keep_succeeded", "keep_cancelled", "keep_dead")
KEEP_COUNTS = ("keep_most_succeeded", "keep_most_cancelled", "keep_most_dead")


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting. `origins` tells where each value came from."""

    url: str = "sqlite:///duly.db"
    """Where jobs are kept: sqlite:///file.db, sqlite:// (in memory), postgresql://..."""

    application: str | None = None
    """Whose the schedules are that code declares; by default the package that makes the App."""

    schema: str = "duly"
    """The PostgreSQL schema that holds Duly's tables."""

    listen_url: str | None = None
    """A direct URL for notifications, when `url` leads to a connection pooler."""

    pool_size: int = 10
    """The most connections to PostgreSQL that one process opens."""

    payload_limit: int = 1024 * 1024
    """The most bytes that a job's arguments, its metadata or its result may take."""

    journal: Journal | None = None
    """Whether the database keeps a journal of every change of a job: `full`, or `off`. Without a
    word it stays as it is, and a new one keeps none."""

    lease: float = 15.0
    """Seconds (or text such as "15s") after which a worker that does not renew is given up."""

    grace: float = 25.0
    """Seconds that jobs have to finish when a worker is told to stop."""

    fair_share: float = 0.05
    """The share of claims that goes to the longest-waiting jobs of any priority; 0 is strict."""

    keep_succeeded: float = 7 * 86400.0
    """Seconds (or text such as "7d") that succeeded jobs are kept."""

    keep_cancelled: float = 7 * 86400.0
    """Seconds that cancelled jobs are kept."""

    keep_dead: float = 90 * 86400.0
    """Seconds that dead jobs are kept."""

    keep_events: float = 30 * 86400.0
    """Seconds that events are kept, for jobs that wait for them later."""

    keep_most_succeeded: int | None = None
    """The most succeeded jobs that are kept, the latest ones; no limit by default."""

    keep_most_cancelled: int | None = None
    """The most cancelled jobs that are kept; no limit by default."""

    keep_most_dead: int | None = None
    """The most dead jobs that are kept; no limit by default."""

    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For single queues: other values of the keep_... settings, as [queues.NAME] in a file."""

    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def retention(self) -> RetentionPolicy:
        """How long finished jobs are kept, in every queue."""
        default = {
            state: Keep(
                timedelta(seconds=getattr(self, f"keep_{state}")),
                getattr(self, f"keep_most_{state}"),
            )
            for state in KEPT
        }
        special = {}
        for queue, settings in self.queues.items():
            special[queue] = {
                state: Keep(
                    timedelta(
                        seconds=settings.get(f"keep_{state}", getattr(self, f"keep_{state}"))
                    ),
                    settings.get(f"keep_most_{state}", getattr(self, f"keep_most_{state}")),
                )
                for state in KEPT
            }
        return RetentionPolicy(default, special, timedelta(seconds=self.keep_events))


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


def redirected(config: Config, url: str) -> Config:
    """The same settings for another database. `listen_url` led to the one before."""
    checked = _checked("url", url, "argument")
    origins = {**config.origins, "url": "argument", "listen_url": "default"}
    return replace(config, url=checked, listen_url=None, origins=origins)


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
        tools = _read(pyproject).get("tool")
        table = tools.get("duly", {}) if isinstance(tools, dict) else {}
        if not isinstance(table, dict):
            raise ConfigurationError("pyproject.toml: [tool.duly] must be a table of settings")
        found.append(("pyproject.toml", table))
    own = directory / "duly.toml"
    if own.is_file():
        found.append(("duly.toml", _read(own)))
    return found


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name}: {error}") from error


def _checked(name: str, value: Any, origin: str) -> Any:
    where = f"{origin}: setting {name}"
    if name in ("lease", "grace", "keep_events") or name in KEEP_AGES:
        return _seconds(value, where)
    if name in KEEP_COUNTS:
        return _count(value, where, 10**12)
    if name == "queues":
        return _queues(value, origin)
    if name == "fair_share":
        return _share(value, where)
    if name == "pool_size":
        return _count(value, where, 1000)
    if name == "payload_limit":
        return _size(value, where)
    if name == "journal":
        return _journal(value, where)
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} must be text; got {value!r}")
    if name == "application":
        return _application(value, where)
    if name == "schema" and not _SCHEMA_NAME.fullmatch(value):
        raise ConfigurationError(
            f"{where} must be a plain lower-case name such as 'duly' or 'jobs_eu', not beginning "
            f"with pg_; got {value!r}"
        )
    if name == "url" and not value.startswith(("sqlite://", *_POSTGRESQL)):
        raise ConfigurationError(
            f"{where} must begin with sqlite:// or postgresql://, such as 'sqlite:///duly.db' or "
            f"'postgresql://user@host/database'; got {_beginning(value)}"
        )
    if name == "listen_url" and not value.startswith(_POSTGRESQL):
        raise ConfigurationError(
            f"{where} must begin with postgresql://, such as 'postgresql://user@host/database'; "
            f"got {_beginning(value)}"
        )
    return value


def _application(value: str, where: str) -> str:
    try:
        return options.application(value, where)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error


def _journal(value: Any, where: str) -> Journal:
    try:
        return Journal(value)
    except ValueError as error:
        known = " or ".join(f"'{each}'" for each in Journal)
        raise ConfigurationError(f"{where} must be {known}; got {value!r}") from error


def _beginning(url: str) -> str:
    """What may be shown of a URL that cannot be read: it may contain a password."""
    scheme, separator, _ = url.partition("://")
    return repr(f"{scheme}{separator}...") if separator else "text without '://'"


def _count(value: Any, where: str, most: int) -> int:
    if re.fullmatch(r"[0-9]{1,18}", str(value)) is None or not 1 <= int(value) <= most:
        raise ConfigurationError(
            f"{where} must be a whole number from 1 to {most:,}, such as 10; got {value!r}"
        )
    return int(value)


def _size(value: Any, where: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}) ?([A-Za-z]*)", str(value))
    if match is None or match[2].upper() not in _SIZE_UNITS or int(match[1]) == 0:
        raise ConfigurationError(
            f"{where} must be a number of bytes above zero, such as 65536 or '4MiB'; got {value!r}"
        )
    return int(match[1]) * _SIZE_UNITS[match[2].upper()]


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = parse_duration(value, where).total_seconds()
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from error
    if seconds < 0.5:
        raise ConfigurationError(f"{where} must be half a second or more; got {value!r}")
    return seconds


def _share(value: Any, where: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigurationError(
            f"{where} must be a number from 0 to 1, such as 0.05; got {value!r}"
        )
    return share


def _queues(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    """The settings of single queues."""
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{origin}: queues must be tables, such as [queues.mail] with keep_succeeded = '1d'"
        )
    checked: dict[str, dict[str, Any]] = {}
    for queue, settings in value.items():
        if not isinstance(settings, dict) or not set(settings) <= {*KEEP_AGES, *KEEP_COUNTS}:
            known = ", ".join([*KEEP_AGES, *KEEP_COUNTS])
            raise ConfigurationError(f"{origin}: [queues.{queue}] may hold {known}")
        checked[queue] = {name: _checked(name, each, origin) for name, each in settings.items()}
    return checked
