"""What is kept of a run that failed: everything that a person needs to see why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import psycopg
from psycopg import sql

ROOT = Path(__file__).parent.parent.parent
FOLDER = "DULY_CHAOS_ARTEFACTS"


def keep(name: str, seed: int, folder: Path, url: str, notes: Iterable[str]) -> Path:
    """Copy the fleet's folder, with logs and an SQLite file, or dump the PostgreSQL tables; answers
    where it is. `notes` go to a file of their own."""
    place = Path(os.environ.get(FOLDER) or ROOT / "chaos-artefacts") / f"{name}-{seed}"
    shutil.copytree(folder, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*cache*"))
    (place / "notes.txt").write_text("\n".join([f"DULY_CHAOS_SEED={seed}", url, *notes]))
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            _dump(connection, place)
    return place


def _dump(connection: psycopg.Connection[tuple[str]], place: Path) -> None:
    tables = connection.execute(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'duly'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition"
    ).fetchall()
    for (table,) in tables:
        text = sql.SQL("COPY (SELECT * FROM {}.{}) TO STDOUT CSV HEADER").format(
            sql.Identifier("duly"), sql.Identifier(table)
        )
        with (place / f"{table}.csv").open("wb") as file, connection.cursor().copy(text) as copy:
            for data in copy:
                file.write(data)
