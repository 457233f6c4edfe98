"""How flows move on, written once over the tables of either engine.

Everything here happens in the transaction that ends a job, or in that of an operator's word, under
a lock on the flow: flows are locked before any of their jobs, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from duly.errors import InvalidFlow
from duly.model.flow import (
    Edge,
    Ended,
    Expansion,
    FailurePolicy,
    FlowChange,
    FlowDraft,
    FlowNode,
    FlowRecord,
    FlowState,
    NodeKind,
    NodeState,
)
from duly.model.job import Draft
from duly.policy.flow_board import STOPPING, Board
from duly.policy.flow_inputs import StoredResult, expanded, results_by_node
from duly.policy.flow_retry import reopened
from duly.policy.flow_rules import END_OF_JOB, FINISHED
from duly.store.operation import Steps
from duly.store.records import REASON_CANCELLED

WAVES = 16
"""After so many rounds of nodes that end nodes, the rest of the graph is read at once."""

REASON_GONE = "its job is gone: its retention has passed"


class FlowTables(Protocol):
    """What an engine has to offer. None of these moves a flow on by itself."""

    def instant(self, now: datetime | None) -> Steps[datetime]: ...
    def add_flow(self, flow: FlowRecord) -> Steps[bool]: ...
    def add_nodes(self, nodes: Sequence[FlowNode]) -> Steps[None]: ...
    def add_edges(self, edges: Sequence[Edge]) -> Steps[None]: ...
    def add_jobs(self, drafts: Sequence[Draft], blocked: bool, now: datetime) -> Steps[None]: ...
    def lock(self, flow_ids: Sequence[UUID]) -> Steps[list[FlowRecord]]: ...
    def lock_name(self, name: str) -> Steps[None]: ...
    def active(self, name: str) -> Steps[int]: ...
    def queued(self, name: str) -> Steps[list[FlowRecord]]: ...
    def nodes(self, ids: Sequence[UUID]) -> Steps[list[FlowNode]]: ...
    def edges(self, parents: Sequence[UUID]) -> Steps[list[Edge]]: ...
    def nodes_of(self, flow_id: UUID, unended: bool) -> Steps[list[FlowNode]]: ...
    def edges_of(self, flow_id: UUID) -> Steps[list[Edge]]: ...
    def results(self, ids: Sequence[UUID]) -> Steps[list[StoredResult]]: ...
    def write_nodes(self, nodes: Sequence[FlowNode], results: dict[UUID, str]) -> Steps[None]: ...
    def write_flows(self, flows: Sequence[FlowRecord]) -> Steps[None]: ...
    def drop_nodes(self, ids: Sequence[UUID]) -> Steps[None]: ...
    def release_jobs(
        self, jobs: Sequence[tuple[UUID, float | None]], now: datetime
    ) -> Steps[None]: ...
    def cancel_jobs(self, ids: Sequence[UUID], reason: str, now: datetime) -> Steps[list[UUID]]:
        """Cancel what does not run, and answer which; what runs is asked to stop."""
        ...

    def reopen_jobs(
        self, ids: Sequence[UUID], arguments: str | None, now: datetime
    ) -> Steps[list[UUID]]:
        """Bring finished jobs back as blocked ones, in a new generation; answers those found."""
        ...


def submit(
    tables: FlowTables, draft: FlowDraft, now: datetime | None
) -> Steps[tuple[FlowRecord, bool]]:
    """See FlowVerbs.submit_flow."""
    instant = yield from tables.instant(now)
    state = FlowState.RUNNING
    if draft.max_active is not None:
        yield from tables.lock_name(draft.name)
        if (yield from tables.active(draft.name)) >= draft.max_active:
            state = FlowState.QUEUED
    flow = FlowRecord(
        id=draft.id,
        name=draft.name,
        state=state,
        policy=draft.policy,
        max_active=draft.max_active,
        total=len(draft.drafts),
        open=len(draft.nodes),
        parent_id=draft.parent_id,
        schedule_id=draft.schedule_id,
        created_at=instant,
    )
    if not (yield from tables.add_flow(flow)):
        (existing,) = yield from tables.lock([draft.id])
        return existing, False
    first = NodeState.RELEASED if state is FlowState.RUNNING else NodeState.HELD
    nodes = [
        msgspec.structs.replace(node, state=first)
        if node.waits_for == 0 and node.kind is NodeKind.JOB
        else node
        for node in draft.nodes
    ]
    at_once = {node.id for node in nodes if node.state is NodeState.RELEASED}
    pending = [each for each in draft.drafts if each.id in at_once]
    blocked = [each for each in draft.drafts if each.id not in at_once]
    for drafts, waits in ((pending, False), (blocked, True)):
        if drafts:
            yield from tables.add_jobs(drafts, waits, instant)
    yield from tables.add_nodes(nodes)
    if draft.edges:
        yield from tables.add_edges(draft.edges)
    board = Board([flow])
    maps = [node for node in nodes if node.waits_for == 0 and node.kind is NodeKind.MAP]
    board.add(maps)
    for node in maps:
        board.release(node.id)
    if maps or not nodes:
        yield from _carry_out(tables, board, instant)
    return board.flows[flow.id], True


def advance(tables: FlowTables, ended: Sequence[Ended], now: datetime | None) -> Steps[None]:
    """Jobs of flows have ended in this transaction: release what waited for them."""
    instant = yield from tables.instant(now)
    flows = yield from tables.lock(sorted({each.flow_id for each in ended}))
    board = Board(flows)
    board.add((yield from tables.nodes([each.job_id for each in ended])))
    for each in ended:
        if each.job_id in board.nodes:
            board.end(each.job_id, END_OF_JOB[each.state], each.result, each.reason)
    yield from _carry_out(tables, board, instant)


def cancel(
    tables: FlowTables, flow_id: UUID, reason: str | None, now: datetime | None
) -> Steps[FlowChange]:
    """See FlowVerbs.cancel_flow."""
    instant = yield from tables.instant(now)
    flows = yield from tables.lock([flow_id])
    if not flows:
        return FlowChange.UNKNOWN
    (flow,) = flows
    if flow.state in FINISHED:
        return FlowChange.NOTHING
    everything = flow.state in (FlowState.CANCELLING, FlowState.QUEUED)
    board = Board(flows)
    why = reason or REASON_CANCELLED
    board.change_flow(flow_id, state=FlowState.CANCELLING, reason=why)
    nodes = yield from tables.nodes_of(flow_id, unended=True)
    board.add(nodes)
    rest = [node for node in nodes if everything or not node.spared]
    yield from _cancel(tables, board, flow_id, rest, instant)
    for node in nodes:
        if board.nodes[node.id].state is NodeState.HELD:
            board.release(node.id)
    yield from _carry_out(tables, board, instant)
    return FlowChange.DONE


def resume(tables: FlowTables, flow_id: UUID, now: datetime | None) -> Steps[FlowChange]:
    """See FlowVerbs.resume_flow."""
    instant = yield from tables.instant(now)
    flows = yield from tables.lock([flow_id])
    if not flows:
        return FlowChange.UNKNOWN
    if flows[0].state is not FlowState.PAUSED:
        return FlowChange.NOTHING
    board = Board(flows)
    board.change_flow(flow_id, state=FlowState.RUNNING, policy=FailurePolicy.CONTINUE)
    board.add((yield from tables.nodes_of(flow_id, unended=True)))
    for node in list(board.nodes.values()):
        if node.state is NodeState.STALLED:
            board.end(node.id, NodeState.FAILED, reason=node.reason)
        elif node.state is NodeState.HELD:
            board.release(node.id)
    yield from _carry_out(tables, board, instant)
    return FlowChange.DONE


def retry(
    tables: FlowTables,
    flow_id: UUID,
    now: datetime | None,
    chosen: Collection[UUID] | None = None,
    arguments: str | None = None,
) -> Steps[FlowChange]:
    """See FlowVerbs.retry_flow; only the chosen nodes, if some are, with other arguments."""
    instant = yield from tables.instant(now)
    flows = yield from tables.lock([flow_id])
    if not flows:
        return FlowChange.UNKNOWN
    if flows[0].state in STOPPING or (chosen is None and flows[0].state is FlowState.QUEUED):
        return FlowChange.NOTHING
    nodes = {node.id: node for node in (yield from tables.nodes_of(flow_id, unended=False))}
    edges = yield from tables.edges_of(flow_id)
    reopening = reopened(flows[0], nodes, edges, chosen)
    if reopening is None:
        return FlowChange.NOTHING
    if reopening.dropped:
        yield from tables.drop_nodes(reopening.dropped)
    back: set[UUID] = set()
    for jobs, theirs in (
        ([each for each in reopening.jobs if chosen is not None and each in chosen], arguments),
        ([each for each in reopening.jobs if chosen is None or each not in chosen], None),
    ):
        if jobs:
            back |= set((yield from tables.reopen_jobs(jobs, theirs, instant)))
    yield from tables.write_nodes(reopening.nodes, {})
    board = Board([(yield from _in_line(tables, flows[0], reopening.flow))])
    board.add(reopening.nodes)
    board.add(node for node in nodes.values() if node.state is NodeState.HELD)
    for job_id in reopening.jobs:
        if job_id not in back:
            board.end(job_id, NodeState.FAILED, reason=REASON_GONE)
    for node in list(board.nodes.values()):
        if node.state is NodeState.HELD or (
            node.item_of is not None and node.state is NodeState.BLOCKED
        ):
            board.release(node.id)
        else:
            board.reconsider(node.id, _blamed(node, nodes, edges))
    yield from _carry_out(tables, board, instant)
    return FlowChange.DONE


def _in_line(tables: FlowTables, before: FlowRecord, opened: FlowRecord) -> Steps[FlowRecord]:
    """A flow that had ended and is opened again, or queued where there is no room for it."""
    waits = before.state is FlowState.QUEUED
    if before.state in FINISHED and opened.max_active is not None:
        yield from tables.lock_name(opened.name)
        waits = (yield from tables.active(opened.name)) >= opened.max_active
    return msgspec.structs.replace(opened, state=FlowState.QUEUED) if waits else opened


def start_queued(tables: FlowTables, names: Iterable[str], now: datetime | None) -> Steps[int]:
    """Start queued flows of these names for which there is room."""
    instant = yield from tables.instant(now)
    board = Board([])
    for name in names:
        yield from _start_queued(tables, board, name)
    started = len(board.flows)
    yield from _carry_out(tables, board, instant)
    return started


def _blamed(node: FlowNode, nodes: dict[UUID, FlowNode], edges: Sequence[Edge]) -> str:
    """The name of a parent that failed, for a node that is cancelled again at once."""
    if not node.failed:
        return node.name
    failed = (
        nodes[edge.parent].name
        for edge in edges
        if edge.child == node.id and nodes[edge.parent].state is NodeState.FAILED
    )
    return next(failed, node.name)


def _carry_out(tables: FlowTables, board: Board, now: datetime) -> Steps[None]:
    """Follow every consequence to its end, and write what has changed."""
    known: dict[UUID, list[Edge]] | None = None
    waves = 0
    while True:
        ended = board.take_ended()
        if ended:
            waves += 1
            if waves == WAVES:
                known = yield from _everything(tables, board)
            if known is None:
                edges = yield from tables.edges(list(ended))
            else:
                edges = [edge for parent in ended for edge in known.get(parent, ())]
            maps = (board.nodes[each].item_of for each in ended)
            wanted = [edge.child for edge in edges] + [each for each in maps if each is not None]
            unknown = board.unknown(wanted)
            if unknown:
                board.add((yield from tables.nodes(unknown)))
            board.apply(edges, ended)
            continue
        failing = board.take_failing()
        for flow_id in sorted(failing):
            rest = yield from tables.nodes_of(flow_id, unended=True)
            spoilt = [node for node in rest if not node.spared]
            yield from _cancel(tables, board, flow_id, spoilt, now)
        if failing:
            continue
        yield from _flush(tables, board, now)
        expanding = board.take_expanding()
        for node_id in expanding:
            yield from _expand(tables, board, node_id, now)
        if expanding:
            continue
        finished = board.finish(now)
        yield from tables.write_flows(list(board.flows.values()))
        for name in sorted({flow.name for flow in finished if flow.max_active is not None}):
            yield from _start_queued(tables, board, name)
        if not finished:
            return


def _everything(tables: FlowTables, board: Board) -> Steps[dict[UUID, list[Edge]]]:
    """Read all that has not ended of the flows at once; answers the edges by parent."""
    known: dict[UUID, list[Edge]] = {}
    for flow_id in sorted(board.flows):
        board.add((yield from tables.nodes_of(flow_id, unended=True)))
        for edge in (yield from tables.edges_of(flow_id)):
            known.setdefault(edge.parent, []).append(edge)
    return known


def _flush(tables: FlowTables, board: Board, now: datetime) -> Steps[None]:
    changed = board.take_changed()
    if changed:
        results, board.results = board.results, {}
        yield from tables.write_nodes(changed, results)
    for reason, jobs in board.take_cancelled().items():
        yield from tables.cancel_jobs(jobs, reason, now)
    released = board.take_released()
    if released:
        yield from tables.release_jobs(
            [(node_id, board.nodes[node_id].delay) for node_id in released], now
        )


def _cancel(
    tables: FlowTables, board: Board, flow_id: UUID, nodes: Sequence[FlowNode], now: datetime
) -> Steps[None]:
    board.add(nodes)
    jobs = board.cancel_rest(flow_id, nodes)
    if jobs:
        reason = board.flows[flow_id].reason or REASON_CANCELLED
        for job_id in (yield from tables.cancel_jobs(jobs, reason, now)):
            board.end(job_id, NodeState.CANCELLED, reason=reason)


def _expand(tables: FlowTables, board: Board, node_id: UUID, now: datetime) -> Steps[None]:
    node = board.nodes[node_id]
    expansion = msgspec.json.decode(node.expansion or "", type=Expansion)
    text, source = expansion.values, node.name
    if expansion.over is not None:
        rows = yield from tables.results([expansion.over])
        text = results_by_node(rows).get(expansion.over)
        board.add((yield from tables.nodes(board.unknown([expansion.over]))))
        source = board.nodes[expansion.over].name
    try:
        items, drafts = expanded(node, expansion, source, text)
    except InvalidFlow as error:
        board.end(node_id, NodeState.FAILED, reason=str(error))
        return
    if items:
        yield from tables.add_jobs(drafts, False, now)
        yield from tables.add_nodes(items)
    board.expand(node_id, len(items))


def _start_queued(tables: FlowTables, board: Board, name: str) -> Steps[None]:
    yield from tables.lock_name(name)
    running = yield from tables.active(name)
    for flow in (yield from tables.queued(name)):
        if flow.max_active is not None and running >= flow.max_active:
            break
        running += 1
        board.flows[flow.id] = msgspec.structs.replace(flow, state=FlowState.RUNNING)
        nodes = yield from tables.nodes_of(flow.id, unended=True)
        held = [node for node in nodes if node.state is NodeState.HELD]
        board.add(held)
        for node in held:
            board.release(node.id)
