"""The verbs about flows that every engine offers. The docstrings here are the contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from duly.model.flow import FlowChange, FlowDraft, FlowRecord, FlowState, NodeView
from duly.store.operation import Operation


class FlowVerbs(Protocol):
    """What can be done to flows, and asked about them.

    A node is released, or ends without having run, in the transaction that ends the last job
    that decides about it, whichever verb that is.
    """

    def submit_flow(
        self, flow: FlowDraft, now: datetime | None = None
    ) -> Operation[tuple[FlowRecord, bool]]:
        """Store a flow with all its jobs, or nothing of it; answers whether it is new. Of an id
        that is there already nothing is stored. While as many of its name are active as it
        allows, it is queued."""
        ...

    def flow_inputs(self, job_ids: Sequence[UUID]) -> Operation[dict[UUID, dict[str, str]]]:
        """The arguments that jobs get from other nodes' results: JSON texts by name."""
        ...

    def cancel_flow(
        self, flow_id: UUID, reason: str | None = None, now: datetime | None = None
    ) -> Operation[FlowChange]:
        """Cancel what has not ended, except nodes that handle failures: those decide by their
        rules. A second time they are cancelled too."""
        ...

    def retry_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        """Run the failed nodes again, and let wait anew what was cancelled or skipped because of
        them; nothing that succeeded runs again unless it handled the failure. Not while the flow
        is on its way out."""
        ...

    def resume_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        """Let a paused flow go on where it can: its failures count as such."""
        ...

    def flow(self, flow_id: UUID) -> Operation[FlowRecord | None]:
        """The flow, if there is one."""
        ...

    def flows(
        self,
        limit: int,
        name: str | None = None,
        states: frozenset[FlowState] | None = None,
        before: UUID | None = None,
    ) -> Operation[list[FlowRecord]]:
        """Flows that match, newest id first, with ids below `before` (the cursor)."""
        ...

    def flow_nodes(self, flow_id: UUID) -> Operation[list[NodeView]]:
        """The nodes of a flow in the order they were made in, items of maps left out."""
        ...

    def start_queued_flows(self, now: datetime | None = None) -> Operation[int]:
        """Start queued flows for which there is room; answers how many. The end of a flow does so
        for its name: this is for what was passed over at that moment."""
        ...

    def purge_flows(self, finished_before: datetime, limit: int) -> Operation[int]:
        """Forget up to `limit` finished flows, not their jobs; answers how many."""
        ...
