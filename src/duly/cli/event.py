"""`duly event`: emit, list."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from duly.cli.rendering import Column, tell, write_json, write_line, write_table
from duly.cli.session import Session, connected
from duly.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from duly.model.event import Emitted, Event
from duly.policy.subscribing import event_name
from duly.registry import strict_json
from duly.service.wording import absolute, counted


@click.group()
def event() -> None:
    """Emit events and look at those that happened."""


@event.command()
@click.argument("name", metavar="NAME")
@click.option("--payload", metavar="JSON", help="What goes with it; - reads stdin.")
@click.option("--key", help="What it is about, such as an order's id.")
@click.option("--id", "event_id", help="Of several events with one id the first counts.")
@click.option("--job", metavar="ID", help="Address it to this job only: a signal.")
@connected(creates=True)
def emit(
    session: Session,
    name: str,
    payload: str | None,
    key: str | None,
    event_id: str | None,
    job: str | None,
) -> None:
    """Say that NAME has happened.

    It starts the jobs that are subscribed to it and wakes those that wait for it.
    """
    value = _payload(payload, session.app.config.payload_limit)
    target = None if job is None else session.identify(job)
    emitted = session.app.emit(name, value, key=key, id=event_id, job=target)
    if session.as_json:
        write_json(_emitted(emitted))
    elif not emitted.created:
        tell(f"There is an event {emitted.event.id} already: nothing was done.")
    else:
        write_line(emitted.event.id)
        tell(
            f"It started {counted(len(emitted.started), 'job')} and woke "
            f"{counted(emitted.woken, 'job')}."
        )


@event.command("list")
@click.option("--name", help="Events of this name only.")
@click.option("--key", help="Events with this key only.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many."
)
@click.option("--before", metavar="ID", help="The next page: older than the event of this id.")
@connected()
def list_events(
    session: Session, name: str | None, key: str | None, limit: int, before: str | None
) -> None:
    """List events, the latest first."""
    chosen = None if name is None else event_name(name, "--name")
    found = session.app.events(limit=limit, name=chosen, key=key, before=before)
    if session.as_json:
        write_json({"events": [msgspec.to_builtins(each) for each in found]})
        return
    if not found:
        tell("There are no such events.")
        return
    write_table(
        [
            Column("ID"),
            Column("NAME", flexible=True),
            Column("KEY", flexible=True),
            Column("AT"),
            Column("PAYLOAD", flexible=True),
        ],
        [_row(each) for each in found],
    )


def _row(each: Event) -> list[str]:
    at = "" if each.at is None else absolute(each.at)
    return [each.id, each.name, each.key or "", at, msgspec.json.encode(each.payload).decode()]


def _emitted(emitted: Emitted) -> dict[str, Any]:
    return {
        "event": msgspec.to_builtins(emitted.event.decoded()),
        "created": emitted.created,
        "started": [str(job_id) for job_id in emitted.started],
        "woken": emitted.woken,
    }


def _payload(text: str | None, limit: int) -> Any:
    """The JSON value of --payload; `-` reads standard input, never more than may be stored."""
    if text is None:
        return None
    source: str | bytes = text
    if text == "-":
        source = sys.stdin.buffer.read(limit + 1)
        if len(source) > limit:
            raise PayloadTooLarge("what --payload reads", len(source), limit)
    try:
        return strict_json.decode(source)
    except InvalidPayload as error:
        raise InvalidInput(
            f"""--payload: {error}; expected JSON, such as '{{"amount": 5}}'"""
        ) from error
