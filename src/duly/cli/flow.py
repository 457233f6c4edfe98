"""`duly flow`: list, show, cancel, retry, resume."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import click
import msgspec

from duly.cli.failures import FAILURE, end_with
from duly.cli.rendering import Column, tell, write_fields, write_json, write_line, write_table
from duly.cli.session import Session, connected
from duly.errors import UnknownFlow
from duly.model.flow import FlowChange, FlowRecord, FlowState, NodeKind, NodeView, plain
from duly.service.identify import identify_flow
from duly.service.wording import absolute, relative

STATES = [state.value for state in FlowState]


@click.group()
def flow() -> None:
    """Look at flows, cancel them, run their failed part again."""


@flow.command("list")
@click.option("--name", help="Only flows of this name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only flows in this state; can be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option("--before", metavar="FLOW", help="The next page: only flows older than this one.")
@connected()
def list_flows(
    session: Session, name: str | None, states: tuple[str, ...], limit: int, before: str | None
) -> None:
    """List flows, newest first, with their progress."""
    store = session.app.store
    wanted = frozenset(map(FlowState, states)) if states else None
    cursor = None if before is None else identify_flow(store, before)
    found = store.run(store.flows(limit, name, wanted, cursor))
    last = found[-1].id if len(found) == limit else None
    if session.as_json:
        write_json({"flows": [plain(each) for each in found], "next": last})
        return
    if not found:
        tell("There are no such flows.")
        return
    now = datetime.now(UTC)
    write_table(
        [
            Column("ID"),
            Column("STATE", statuses=True),
            Column("NAME", flexible=True),
            Column("DONE", right=True),
            Column("FAILED", right=True),
            Column("CREATED"),
        ],
        [
            [
                str(each.id),
                each.state.value,
                each.name,
                _progress(each),
                str(each.failed),
                relative(each.created_at, now),
            ]
            for each in found
        ],
    )
    if last is not None:
        tell(f"There may be more: --before {last}")


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@connected()
def show(session: Session, flow_id: str) -> None:
    """Show a flow and each of its nodes. FLOW is its id, or the beginning of it."""
    store = session.app.store
    known = identify_flow(store, flow_id)
    record = store.run(store.flow(known))
    if record is None:
        raise UnknownFlow(known)
    nodes = store.run(store.flow_nodes(known))
    if session.as_json:
        write_json({**plain(record), "nodes": msgspec.to_builtins(nodes)})
        return
    now = datetime.now(UTC)
    when = f"{absolute(record.created_at)} ({relative(record.created_at, now)})"
    fields = [
        ("Flow", str(record.id)),
        ("Name", record.name),
        ("State", record.state.value),
        ("On failure", record.policy.value),
        ("Jobs", f"{_progress(record)} succeeded, {_rest(record)}"),
        ("Created", when),
    ]
    if record.reason:
        fields.append(("Reason", record.reason))
    if record.finished_at is not None:
        fields.append(("Finished", absolute(record.finished_at)))
    if record.max_active is not None:
        fields.append(("At once", f"at most {record.max_active} of this name"))
    write_fields(fields)
    write_line("")
    write_table(
        [
            Column("NODE", flexible=True),
            Column("STATE", statuses=True),
            Column("RUNS WHEN"),
            Column("AFTER", flexible=True),
            Column("ITEMS", right=True),
            Column("JOB"),
            Column("REASON", flexible=True),
        ],
        [
            [
                node.name,
                node.state.value,
                node.rule.value,
                _parents(node),
                _items(node),
                str(node.id) if node.kind is NodeKind.JOB else "",
                node.reason or "",
            ]
            for node in nodes
        ],
    )


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@click.option("--reason", help="Why; kept with the flow and its jobs.")
@connected()
def cancel(session: Session, flow_id: str, reason: str | None) -> None:
    """Cancel what has not ended of a flow.

    Nodes that handle failures still run by their rules; cancelled a second time, they do not.
    """
    store = session.app.store
    known = identify_flow(store, flow_id)
    done = store.run(store.cancel_flow(known, reason))
    _answer(session, known, done, "is cancelled", "has ended already")


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@connected()
def retry(session: Session, flow_id: str) -> None:
    """Run the failed part of a flow again, and what was cancelled because of it."""
    store = session.app.store
    known = identify_flow(store, flow_id)
    done = store.run(store.retry_flow(known))
    _answer(session, known, done, "goes on", "has nothing to run again, or is still on its way out")


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@connected()
def resume(session: Session, flow_id: str) -> None:
    """Let a paused flow go on where it can, without what failed."""
    store = session.app.store
    known = identify_flow(store, flow_id)
    done = store.run(store.resume_flow(known))
    _answer(session, known, done, "goes on", "is not paused")


def _answer(session: Session, flow_id: UUID, change: FlowChange, done: str, not_done: str) -> None:
    """Say what came of it; 1 when nothing did."""
    if change is FlowChange.UNKNOWN:
        raise UnknownFlow(flow_id)
    if session.as_json:
        write_json({"flow": flow_id, "result": change.value})
    else:
        tell(f"Flow {flow_id} {done if change is FlowChange.DONE else not_done}.")
    if change is FlowChange.NOTHING:
        end_with(FAILURE)


def _progress(record: FlowRecord) -> str:
    return f"{record.succeeded:,}/{record.total:,}"


def _rest(record: FlowRecord) -> str:
    return f"{record.failed:,} failed, {record.cancelled:,} cancelled, {record.skipped:,} skipped"


def _parents(node: NodeView) -> str:
    shown = ", ".join(node.parents[:5])
    return shown if len(node.parents) <= 5 else f"{shown} and {len(node.parents) - 5} more"


def _items(node: NodeView) -> str:
    if node.kind is not NodeKind.MAP:
        return ""
    failed = f", {node.items_failed} failed" if node.items_failed else ""
    return f"{node.items_succeeded}/{node.items}{failed}"
