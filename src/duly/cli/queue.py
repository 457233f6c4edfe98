"""`duly queue`: list, pause, resume."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from duly.cli.rendering import Column, tell, write_json, write_table
from duly.cli.session import Session, connected
from duly.model.job import State
from duly.service.wording import span

SHOWN = (State.PENDING, State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED)
SHOWN_WHEN_ANY = (State.BLOCKED, State.WAITING)


@click.group()
def queue() -> None:
    """Look at queues, pause and resume them."""


@queue.command("list")
@connected()
def list_queues(session: Session) -> None:
    """List queues: jobs in each state, live workers that serve it, whether it is paused,
    and for how long the job that waits for longest has been due."""
    found = session.queues.overview()
    if session.as_json:
        write_json({"queues": found})
        return
    if not found:
        tell("There are no queues yet: one appears with its first job.")
        return
    states = [
        state
        for state in State
        if state in SHOWN or (state in SHOWN_WHEN_ANY and any(each.jobs[state] for each in found))
    ]
    now = datetime.now(UTC)
    write_table(
        [
            Column("QUEUE", flexible=True),
            Column("STATE", statuses=True),
            Column("WORKERS", right=True),
            Column("OLDEST DUE", right=True),
            *(Column(state.value.upper(), right=True) for state in states),
            Column("NOTE", flexible=True),
        ],
        [
            [
                each.name,
                "paused" if each.paused else "open",
                str(each.workers),
                "" if each.oldest_due_at is None else span(now - each.oldest_due_at),
                *(f"{each.jobs[state]:,}" for state in states),
                each.note or "",
            ]
            for each in found
        ],
    )


@queue.command()
@click.argument("name", metavar="QUEUE")
@click.option("--note", help="Why; shown wherever the queue is.")
@connected()
def pause(session: Session, name: str, note: str | None) -> None:
    """Start no more jobs from QUEUE.

    What runs goes on, and jobs can still be submitted to it.
    """
    session.queues.pause(name, note)
    if session.as_json:
        write_json({"queue": name, "paused": True, "note": note})
    else:
        tell(f"Queue {name} is paused. Let it go on with: duly queue resume {name}")


@queue.command()
@click.argument("name", metavar="QUEUE")
@connected()
def resume(session: Session, name: str) -> None:
    """Start jobs from QUEUE again."""
    was_paused = session.queues.resume(name)
    if session.as_json:
        write_json({"queue": name, "paused": False, "was_paused": was_paused})
    else:
        tell(f"Queue {name} goes on." if was_paused else f"Queue {name} was not paused.")
