"""Numbered, append-only migrations, each applied in one transaction and recorded in it.

A file is named NNNN_what.sql. Its first line may be `-- breaks releases below NNNN`: code that
knows no migration of at least that number refuses to run on the newer schema. Without such a
line the migration is one that older code can live with.
"""

from __future__ import annotations

import re
from importlib import resources

import msgspec

from duly.errors import SchemaAhead, SchemaBehind

_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
_BREAKS = re.compile(r"-- breaks releases below (\d{4})")


class Migration(msgspec.Struct, frozen=True):
    """One step from a schema to the next."""

    number: int
    name: str
    text: str
    oldest_release: int


class SchemaVersion(msgspec.Struct, frozen=True):
    """Where a database stands: its last migration, and the oldest code that can use it."""

    number: int
    oldest_release: int


def load(package: str) -> list[Migration]:
    """The migrations of an engine, in order and without a hole."""
    found = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            continue
        text = file.read_text(encoding="utf-8")
        breaks = _BREAKS.match(text)
        found.append(
            Migration(
                number=int(match[1]),
                name=f"{match[1]}_{match[2]}",
                text=text,
                oldest_release=int(breaks[1]) if breaks else 0,
            )
        )
    found.sort(key=lambda migration: migration.number)
    return found


def outstanding(migrations: list[Migration], version: SchemaVersion) -> list[Migration]:
    """Those still to be applied."""
    return [migration for migration in migrations if migration.number > version.number]


def require_current(migrations: list[Migration], version: SchemaVersion, where: str) -> None:
    """Raise unless this code can work on a database that stands at `version`."""
    known = migrations[-1].number
    if version.number < known:
        raise SchemaBehind(
            f"the schema in {where} is at migration {version.number}, this release needs {known}: "
            "run `duly db migrate` (or app.migrate())"
        )
    if version.oldest_release > known:
        raise SchemaAhead(
            f"the schema in {where} is at migration {version.number} and needs a release that "
            f"knows migration {version.oldest_release}; this one knows {known}: upgrade duly"
        )
