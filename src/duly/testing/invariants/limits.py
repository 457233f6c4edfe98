"""I12 Limits and liveness: never more at once than allowed, never later than promised."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from duly.model.job import State
from duly.model.schedule import Overlap, TickKind, TickOutcome
from duly.testing.evidence import Evidence, Finding

ONE_AT_A_TIME = frozenset({Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL})

Span = tuple[datetime, datetime | None]


def limits(evidence: Evidence) -> Iterator[Finding]:
    """Schedules that allow no overlap, flows with a limit, due jobs, and jobs of lost workers."""
    if evidence.history.journal:
        yield from _schedules(evidence)
        yield from _flows(evidence)
        yield from _late_starts(evidence)
        yield from _late_rescues(evidence)


def _schedules(evidence: Evidence) -> Iterator[Finding]:
    careful = {
        schedule.id
        for schedule in evidence.history.schedules
        if schedule.definition.overlap in ONE_AT_A_TIME
    }
    jobs: dict[str, list[tuple[Span, UUID]]] = {}
    for tick in evidence.history.ticks:
        by_rule = tick.kind is TickKind.TICK and tick.outcome is TickOutcome.FIRED
        if tick.schedule_id in careful and by_rule and tick.job_id is not None:
            for span in evidence.live(tick.job_id)[:1]:
                jobs.setdefault(tick.schedule_id, []).append((span, tick.job_id))
    for name, spans in jobs.items():
        spans.sort()
        for (first, one), (second, other) in pairwise(spans):
            if one != other and (first[1] is None or second[0] < first[1]):
                message = f"was made by {name} while {one} was live, which it does not allow"
                yield Finding("I12", message, other)


def _flows(evidence: Evidence) -> Iterator[Finding]:
    """From a flow's first claim to its end it is active, if nobody has run parts of it again."""
    again = {job.flow_id for job in evidence.jobs.values() if job.generation > 1}
    first: dict[UUID, datetime] = {}
    for job in evidence.jobs.values():
        for _, claim in evidence.claims(job.id):
            if job.flow_id is not None:
                known = first.get(job.flow_id, claim.at)
                first[job.flow_id] = min(known, claim.at)
    names: dict[str, list[tuple[datetime, int, UUID]]] = {}
    allowed: dict[str, int] = {}
    for flow in evidence.history.flows:
        if flow.max_active is not None and flow.id in first and flow.id not in again:
            allowed[flow.name] = max(allowed.get(flow.name, 0), flow.max_active)
            changes = names.setdefault(flow.name, [])
            changes.append((first[flow.id], 1, flow.id))
            if flow.finished_at is not None:
                changes.append((flow.finished_at, -1, flow.id))
    for name, changes in names.items():
        active = 0
        for _, change, _ in sorted(changes, key=lambda each: (each[0], each[1])):
            active += change
            if active > allowed[name]:
                message = f"{active} flows {name} were active, {allowed[name]} are allowed"
                yield Finding("I12", message)
                break


def _late_starts(evidence: Evidence) -> Iterator[Finding]:
    history = evidence.history
    if history.quiet_since is None or history.start_within is None:
        return
    for job_id in evidence.journal:
        for before, claim in evidence.claims(job_id):
            ready = max(before.due, before.at, history.quiet_since)
            late = (claim.at - ready).total_seconds()
            if late > history.start_within:
                message = f"was ready for {late:.1f} s, {history.start_within:g} s are allowed"
                yield Finding("I12", message, job_id)


def _late_rescues(evidence: Evidence) -> Iterator[Finding]:
    history = evidence.history
    if history.taken_back_within is None:
        return
    lost = {loss.worker: loss.at for loss in history.losses}
    for job_id, entries in evidence.journal.items():
        for number, entry in enumerate(entries):
            died = None if entry.worker is None else lost.get(entry.worker)
            if entry.after is not State.RUNNING or died is None:
                continue
            after = entries[number + 1].at if number + 1 < len(entries) else history.now
            late = after - max(died, entry.at)
            if late > timedelta(seconds=history.taken_back_within):
                message = f"was left with worker {entry.worker} {late.total_seconds():.1f} s"
                yield Finding("I12", f"{message} after that had died", job_id)
