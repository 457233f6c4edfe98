"""Enqueue on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from duly.model.identifiers import id_of
from duly.model.job import Alike, Draft, JobRecord, KeyPolicy
from duly.model.query import Enqueued, Stored
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.records import (
    JOB_COLUMNS,
    OWN,
    KeyedBatch,
    by_field,
    refuse_if_rejecting,
    replacement,
    shareable,
)
from duly.store.sqlite.reading import read_jobs
from duly.store.sqlite.rows import COLUMN, array, clock, job_row, moment

INSERT = f"INSERT INTO jobs ({', '.join(JOB_COLUMNS)}) VALUES ({', '.join('?' * len(JOB_COLUMNS))})"
INSERT_NEW = (
    f"INSERT INTO jobs ({', '.join(JOB_COLUMNS)}) SELECT {', '.join('?' * len(JOB_COLUMNS))}"
    " WHERE NOT EXISTS (SELECT 1 FROM archive WHERE id = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM dead WHERE id = ?1)"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
# Many that have everything in common but ids, joined in ?1, and arguments, an array in ?2: rows do
# not pass through Python.
_ARGUMENTS = COLUMN["arguments"]
_SHARED = [name for name in JOB_COLUMNS if name not in OWN]
_SOURCES = {"id": "substr(?1, input.key * 16 + 1, 16)", "arguments": "input.value"} | {
    name: f"?{number}" for number, name in enumerate(_SHARED, 3)
}
INSERT_ALIKE = (
    f"INSERT INTO jobs ({', '.join(JOB_COLUMNS)})"
    f" SELECT {', '.join(_SOURCES[name] for name in JOB_COLUMNS)} FROM json_each(?2) AS input"
)
INSERT_NEW_ALIKE = (
    f"{INSERT_ALIKE} WHERE NOT EXISTS (SELECT 1 FROM archive WHERE id = {_SOURCES['id']})"
    f" AND NOT EXISTS (SELECT 1 FROM dead WHERE id = {_SOURCES['id']})"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
# One statement that is a transaction of its own. It stores nothing if there is no such lane yet,
# and fails if an id is that of a live job. (Of an EXISTS SQLite makes a join, twice as slow.)
INSERT_HOPEFULLY = (
    f"INSERT INTO jobs ({', '.join(JOB_COLUMNS)}) SELECT {', '.join('?' * len(JOB_COLUMNS))}"
    " WHERE (SELECT 1 FROM lanes WHERE task = ?2 AND queue = ?3 AND priority = ?4)"
)
INSERT_ALIKE_HOPEFULLY = (
    f"{INSERT_ALIKE} WHERE (SELECT 1 FROM lanes WHERE task = {_SOURCES['task']}"
    f" AND queue = {_SOURCES['queue']} AND priority = {_SOURCES['priority']})"
)
# Ids begin with the time: those of a batch are close together, and others are seldom among them.
KNOWN_BETWEEN = " UNION ALL ".join(
    f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {place} WHERE id BETWEEN ?1 AND ?2)"
    for place in ("jobs", "archive", "dead")
)
REPLACE = (
    f"UPDATE jobs SET ({', '.join(JOB_COLUMNS)}) = ({', '.join('?' * len(JOB_COLUMNS))}) "
    "WHERE id = ? AND state IN ('pending', 'blocked') AND attempt = 0 AND NOT stepped RETURNING id"
)
LANE = "INSERT OR IGNORE INTO lanes (queue, task, priority) VALUES (?, ?, ?)"
WORKERS = frozenset({Wake.WORKERS})
HOLDER = (
    "SELECT job_id FROM keys WHERE task = ? AND key = ? AND (held_until IS NULL OR held_until > ?)"
)
HOLD = (
    "INSERT INTO keys (task, key, job_id, held_until) VALUES (?, ?, ?, NULL)"
    " ON CONFLICT (task, key) DO UPDATE SET job_id = excluded.job_id, held_until = NULL"
)


def enqueue(drafts: Sequence[Draft], now: datetime | None) -> Steps[Sequence[Enqueued]]:
    """See Verbs.enqueue."""
    instant = moment(clock(now))
    keyed = KeyedBatch(drafts)
    if not keyed.contenders:
        return (yield from _insert(drafts, instant)) if drafts else []
    answers: dict[UUID, Enqueued] = {}
    for draft in keyed.contenders:
        held = yield from _settle_key(draft, instant)
        if held is not None:
            answers[draft.id] = held
    fresh = [
        draft for draft in drafts if draft.id not in answers and keyed.contender(draft) is draft
    ]
    if fresh:
        stored = yield from _insert(fresh, instant)
        answers |= {draft.id: each for draft, each in zip(fresh, stored, strict=True)}
    return [_answer(keyed.contender(draft), draft, answers) for draft in drafts]


def enqueue_again(drafts: Sequence[Draft], now: datetime | None) -> Steps[Sequence[Enqueued]]:
    """Submit what is not there yet, be it live or finished."""
    known = yield from read_jobs([draft.id for draft in drafts])
    found = {job.id: Enqueued(job, created=False) for job in known if job is not None}
    rest = [draft for draft in drafts if draft.id not in found]
    others = yield from enqueue(rest, now)
    found |= {draft.id: other for draft, other in zip(rest, others, strict=True)}
    return [found[draft.id] for draft in drafts]


def _settle_key(draft: Draft, instant: datetime) -> Steps[Enqueued | None]:
    """Take the draft's key, or answer with the job that holds it."""
    rows = yield Statement(HOLDER, (draft.task, draft.key, clock(instant)))
    if rows:
        holder = id_of(rows[0][0])
        (existing,) = yield from read_jobs([holder])
        if existing is not None:
            if holder == draft.id:
                return Enqueued(existing, created=False)
            refuse_if_rejecting(draft, holder)
            if draft.key_policy is KeyPolicy.REPLACE:
                return (yield from _replace(existing, draft, instant))
            return Enqueued(existing, created=False)
    yield Statement(HOLD, (draft.task, draft.key, draft.id.bytes))
    return None


def _replace(existing: JobRecord, draft: Draft, instant: datetime) -> Steps[Enqueued]:
    """Give a job that has not started the draft's contents, under its own id."""
    fresh = replacement(existing, draft, instant)
    row = job_row(fresh)
    replaced = yield Statement(REPLACE, (*row, existing.id.bytes))
    if not replaced:
        return Enqueued(existing, created=False)
    yield Statement(LANE, (fresh.queue, fresh.task, fresh.priority))
    return Enqueued(fresh, created=False, replaced=True)


def _insert(drafts: Sequence[Draft], instant: datetime) -> Steps[Sequence[Enqueued]]:
    if len(drafts) == 1:
        return (yield from _insert_one(drafts[0], instant))
    if isinstance(drafts, Alike):
        inserted = yield from _insert_alike(drafts.template, drafts.ids, drafts.arguments, instant)
    else:
        differing, columns = by_field(drafts)
        if differing == OWN:
            ids, arguments = columns["id"], columns["arguments"]
            inserted = yield from _insert_alike(drafts[0], ids, arguments, instant)
        else:
            inserted = yield from _insert_apart(drafts, instant)
    if len(inserted) == len(drafts):
        return Stored(drafts, instant)
    repeated = [draft.id for draft in drafts if draft.id.bytes not in inserted]
    existing = yield from read_jobs(repeated)
    known = {job.id: Enqueued(job, created=False) for job in existing if job is not None}
    return [known.get(draft.id) or Enqueued(draft, True, False, instant) for draft in drafts]


def _insert_one(draft: Draft, instant: datetime) -> Steps[Sequence[Enqueued]]:
    yield Statement(LANE, (draft.queue, draft.task, draft.priority))
    if (yield Statement(INSERT_NEW, job_row(draft.stored(instant)))):
        return [Enqueued(draft, True, False, instant)]
    (existing,) = yield from read_jobs([draft.id])
    return [Enqueued(draft if existing is None else existing, existing is None, False, instant)]


def _insert_alike(
    common: Draft, ids: Sequence[bytes], arguments: Sequence[str], instant: datetime
) -> Steps[set[bytes]]:
    """Insert what is not there yet of drafts that are like this one; answers which ids."""
    yield Statement(LANE, (common.queue, common.task, common.priority))
    row = dict(zip(JOB_COLUMNS, job_row(common.stored(instant)), strict=True))
    wanted = set(ids)
    values = (b"".join(ids), array(arguments), *(row[name] for name in _SHARED))
    if len(wanted) == len(ids):
        known = yield Statement(KNOWN_BETWEEN, (min(ids), max(ids)))
        if not known:
            yield Statement(INSERT_ALIKE, values)
            return wanted
    rows = yield Statement(INSERT_NEW_ALIKE, values)
    return {row[0] for row in rows}


def _insert_apart(drafts: Sequence[Draft], instant: datetime) -> Steps[set[bytes]]:
    """The same of drafts that differ."""
    lanes = {(draft.queue, draft.task, draft.priority) for draft in drafts}
    yield Statement(LANE, sorted(lanes), many=True)
    new = [job_row(draft.stored(instant)) for draft in drafts]
    rows = yield Statement(INSERT_NEW, new, many=True)
    return {row[0] for row in rows}


def _answer(contender: Draft, draft: Draft, answers: dict[UUID, Enqueued]) -> Enqueued:
    answer = answers[contender.id]
    return answer if contender is draft else Enqueued(answer.job, created=False)


def enqueue_hopefully(drafts: Alike) -> Steps[Sequence[Enqueued] | None]:
    """Store what is all new and of a lane that is there; else answers None, or fails."""
    instant = moment(clock(None))
    row = job_row(drafts.template.stored(instant))
    before, after = row[1:_ARGUMENTS], row[_ARGUMENTS + 1 :]
    ids, arguments = drafts.ids, drafts.arguments
    if len(ids) == 1:
        statement = INSERT_HOPEFULLY, (ids[0], *before, arguments[0], *after)
    else:
        statement = INSERT_ALIKE_HOPEFULLY, (b"".join(ids), array(arguments), *before, *after)
    ((stored,),) = yield Statement(*statement, counted=True)
    return Stored(drafts, instant) if stored else None


class Submission:
    """The verb that takes jobs in."""

    def enqueue(
        self, drafts: Sequence[Draft], now: datetime | None = None, repeated: bool = False
    ) -> Operation[Sequence[Enqueued]]:
        start = enqueue_again if repeated else enqueue
        shared = shareable(drafts, now, repeated)
        return Operation(
            lambda: start(drafts, now),
            hopefully=partial(enqueue_hopefully, shared) if isinstance(shared, Alike) else None,
            wakes=WORKERS,
            drafts=shared,
        )
