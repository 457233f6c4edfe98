"""`duly db`: migrate, status."""

from __future__ import annotations

import click

from duly.cli.failures import FAILURE, end_with
from duly.cli.rendering import tell, write_fields, write_json, write_line
from duly.cli.session import Session, connected
from duly.service.database import DatabaseStatus
from duly.service.wording import counted


@click.group("db")
def database() -> None:
    """Look after the database that holds the jobs."""


@database.command()
@connected(creates=True)
def migrate(session: Session) -> None:
    """Bring the schema up to date; safe to repeat, and on several machines at once.

    Prints the names of the migrations applied. SQLite needs no such call: it migrates when it is
    opened.
    """
    done = session.database.migrate()
    if session.as_json:
        write_json(done)
        return
    for name in done.applied:
        write_line(name)
    if done.applied:
        tell(f"{counted(len(done.applied), 'migration')} applied to {done.url}.")
    else:
        tell(f"{done.url} is up to date.")


@database.command()
@connected()
def status(session: Session) -> None:
    """Show where the database is, its schema's version, and how many jobs it holds.

    Exits with 1 when this release cannot work on it as it is.
    """
    found = session.database.status()
    if session.as_json:
        write_json(found)
    else:
        write_fields(
            [
                ("Database", found.url),
                ("Schema", _schema(found)),
                *((state.value.capitalize(), f"{jobs:,}") for state, jobs in found.jobs.items()),
            ]
        )
        if found.advice:
            tell(found.advice)
    if not found.usable:
        end_with(FAILURE)


def _schema(status: DatabaseStatus) -> str:
    if status.version is None:
        return "made for a newer release"
    if status.version == status.needed:
        return f"{status.version}, current"
    return f"{status.version}, {status.state.value}: this release has {status.needed}"
