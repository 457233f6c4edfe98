"""Enqueue on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from duly.model.identifiers import id_of, ids_of
from duly.model.job import Alike, Draft, JobRecord, KeyPolicy, State
from duly.model.query import Enqueued, Stored
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.arrays import array_of_ids, as_array
from duly.store.postgres.reading import Reading
from duly.store.postgres.rows import CLOCK, NOW, utc
from duly.store.records import (
    ERROR_COLUMNS,
    FEW,
    JOB_COLUMNS,
    KeyedBatch,
    any_keyed,
    by_field,
    refuse_if_rejecting,
    replacement,
    shareable,
)

# What a draft can set, with its type. Tags travel as JSON: unnest flattens arrays of arrays.
DRAFT_COLUMNS = {
    "id": "uuid",
    "task": "text",
    "queue": "text",
    "priority": "smallint",
    "run_at": "timestamptz",
    "delay": "interval",
    "arguments": "text",
    "max_attempts": "integer",
    "max_crashes": "integer",
    "delivery": "text",
    "key": "text",
    "key_window": "double precision",
    "owner": "text",
    "tenant": "text",
    "timeout": "double precision",
    "expires_at": "timestamptz",
    "expires_after": "interval",
    "tags": "text",
    "metadata": "text",
    "parent_id": "uuid",
    "flow_id": "uuid",
    "schedule_id": "text",
    "scheduled_for": "timestamptz",
}
COPIED = [
    name
    for name in DRAFT_COLUMNS
    if name not in ("run_at", "delay", "expires_at", "expires_after", "tags")
]
CODED = frozenset({"delivery", "priority", "tags"})
LANE_COLUMNS = ("queue", "task", "priority")


# What it takes to leave out ids that are there already is a third of the server's work.
NEW_ONLY = """
    ON CONFLICT (id) DO NOTHING
    RETURNING id"""
NEW = """CASE WHEN (SELECT count(*) FROM inserted) < %(number)s::integer
    THEN ARRAY(SELECT id FROM inserted) END"""


@lru_cache(maxsize=256)
def _insert_text(differing: frozenset[str], state: State, unseen: bool) -> str:
    """The statement for drafts that differ in these columns, which come as arrays; what they have
    in common comes once."""
    arrays = {name: kind for name, kind in DRAFT_COLUMNS.items() if name in differing}
    value = {
        name: name if name in differing else f"%({name})s::{kind}"
        for name, kind in DRAFT_COLUMNS.items()
    }
    in_lanes = "" if differing.isdisjoint(LANE_COLUMNS) else "FROM input"
    return f"""
WITH {CLOCK},
input AS (
    SELECT * FROM unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in arrays.items())})
        AS draft ({", ".join(arrays)})
),
new_lanes AS (
    INSERT INTO {{schema}}.lanes (queue, task, priority)
    SELECT * FROM (
        SELECT DISTINCT {", ".join(f"{value[name]} AS {name}" for name in LANE_COLUMNS)} {in_lanes}
    ) lane
    WHERE NOT EXISTS (
        SELECT FROM {{schema}}.lanes known
        WHERE (known.queue, known.task, known.priority) = (lane.queue, lane.task, lane.priority)
    )
),
inserted AS (
    INSERT INTO {{schema}}.jobs (
        {", ".join(COPIED)}, run_at, expires_at, tags, created_at,
        state, token, attempt, crashes, generation, alone
    )
    SELECT {", ".join(value[name] for name in COPIED)},
        coalesce({value["run_at"]}, {NOW} + {value["delay"]}, {NOW}),
        coalesce({value["expires_at"]}, {NOW} + {value["expires_after"]}),
        CASE WHEN {value["tags"]} IS NOT NULL
            THEN ARRAY(SELECT jsonb_array_elements_text({value["tags"]}::jsonb)) END,
        {NOW}, '{state.value}', 0, 0, 0, 1, false
    FROM input{"" if unseen else NEW_ONLY}
)
SELECT {NOW}, {"NULL" if unseen else NEW}
"""


@lru_cache(maxsize=256)
def _insert_one_text(given: frozenset[str]) -> str:
    """The statement for one draft that has these fields and an id that nobody has sent before. It
    answers with the moment of storing, or with nothing if there is no such lane yet."""
    value = {name: f"%({name})s::{DRAFT_COLUMNS[name]}" for name in DRAFT_COLUMNS if name in given}
    columns = {name: value[name] for name in COPIED if name in given}
    columns["run_at"] = value.get(
        "run_at", f"now + {value['delay']}" if "delay" in given else "now"
    )
    if "expires_at" in given:
        columns["expires_at"] = value["expires_at"]
    elif "expires_after" in given:
        columns["expires_at"] = f"now + {value['expires_after']}"
    if "tags" in given:
        columns["tags"] = f"ARRAY(SELECT jsonb_array_elements_text({value['tags']}::jsonb))"
    return f"""
INSERT INTO {{schema}}.jobs (
    {", ".join(columns)}, created_at, state, token, attempt, crashes, generation, alone
)
SELECT {", ".join(columns.values())}, now, '{State.PENDING.value}', 0, 0, 0, 1, false
FROM (SELECT clock_timestamp() AS now OFFSET 0) clock
WHERE EXISTS (
    SELECT FROM {{schema}}.lanes
    WHERE {" AND ".join(f"{name} = {value[name]}" for name in LANE_COLUMNS)}
)
RETURNING created_at
"""


@lru_cache(maxsize=1024)
def _one_like(template: Draft) -> tuple[str, dict[str, Any]]:
    """The template of the statement that stores one draft like this, and its parameters but those
    that are the draft's own."""
    coded = {name: _coded(name, getattr(template, name)) for name in DRAFT_COLUMNS}
    values = {name: value for name, value in coded.items() if value is not None}
    return _insert_one_text(frozenset(values)), values


INSTANT = "SELECT coalesce(%(now)s::timestamptz, clock_timestamp())"
# Neither statement waits for, or locks, the key of a live job: a caller's long transaction must
# not hold up the settlement of the job that has the key.
HOLD = """
INSERT INTO {schema}.keys (task, key, job_id)
SELECT * FROM unnest(%(tasks)s::text[], %(keys)s::text[], %(jobs)s::uuid[])
    AS wanted (task, key, job_id)
ORDER BY task, key
ON CONFLICT (task, key) DO NOTHING
RETURNING job_id
"""
TAKE_OVER = """
UPDATE {schema}.keys held SET job_id = wanted.job_id, held_until = NULL
FROM unnest(%(tasks)s::text[], %(keys)s::text[], %(jobs)s::uuid[]) AS wanted (task, key, job_id)
WHERE held.task = ANY(%(tasks)s::text[]) AND held.key = ANY(%(keys)s::text[])
AND (held.task, held.key) = (wanted.task, wanted.key) AND held.held_until <= %(now)s
RETURNING wanted.job_id
"""
HOLDERS = """
SELECT wanted.task, wanted.key, held.job_id
FROM unnest(%(tasks)s::text[], %(keys)s::text[]) AS wanted (task, key)
CROSS JOIN LATERAL (
    SELECT job_id FROM {schema}.keys
    WHERE (keys.task, keys.key) = (wanted.task, wanted.key) LIMIT 1
) held
"""
# The holder's job is not to be found: its retention has passed before its key's window.
INHERIT = """
UPDATE {schema}.keys SET job_id = %(job)s, held_until = NULL
WHERE task = %(task)s AND key = %(key)s AND job_id = %(holder)s
RETURNING job_id
"""
REPLACEABLE = [
    "queue",
    "priority",
    "run_at",
    "arguments",
    "max_attempts",
    "crashes",
    "max_crashes",
    "delivery",
    "key_window",
    "owner",
    "tenant",
    "timeout",
    "expires_at",
    "tags",
    "metadata",
    "parent_id",
    "flow_id",
    "schedule_id",
    "scheduled_for",
    *ERROR_COLUMNS,
]
# A row that somebody has locked is being claimed or cancelled at this moment: too late.
REPLACE = f"""
UPDATE {{schema}}.jobs SET {", ".join(f"{name} = %({name})s" for name in REPLACEABLE)}
WHERE id = (
    SELECT id FROM {{schema}}.jobs
    WHERE id = %(id)s AND state IN ('pending', 'blocked') AND attempt = 0 AND NOT stepped
    FOR UPDATE SKIP LOCKED
)
RETURNING id
"""
LANE = """
INSERT INTO {schema}.lanes (queue, task, priority)
SELECT %(queue)s::text, %(task)s::text, %(priority)s::smallint
WHERE NOT EXISTS (
    SELECT FROM {schema}.lanes
    WHERE queue = %(queue)s AND task = %(task)s AND priority = %(priority)s
)
"""


class Submission(Reading):
    """The verb that takes jobs in."""

    def enqueue(
        self, drafts: Sequence[Draft], now: datetime | None = None, repeated: bool = False
    ) -> Operation[Sequence[Enqueued]]:
        keyed = any_keyed(drafts)
        shared = shareable(drafts, now, repeated)
        hopefully: Callable[[], Steps[Sequence[Enqueued]]] | None = None
        make_ready = None
        if isinstance(shared, Alike) and len(shared) == 1:
            hopefully = partial(self._insert_one, shared)
        elif len(drafts) > FEW and not keyed and not repeated:
            hopefully = of_new_ids = _OfNewIds(self.text, drafts, now)
            make_ready = of_new_ids.make_ready
        return Operation(
            lambda: (
                self._enqueue_again(drafts, now, created=False)
                if repeated
                else self._enqueue(drafts, now)
            ),
            hopefully=hopefully,
            again=lambda: self._enqueue_again(drafts, now, created=True),
            atomic=repeated or keyed,
            wakes=frozenset({Wake.WORKERS}),
            drafts=shared,
            make_ready=make_ready,
        )

    def _enqueue_again(
        self, drafts: Sequence[Draft], now: datetime | None, created: bool
    ) -> Steps[Sequence[Enqueued]]:
        """Submit what is not there yet, be it live or finished. With `created` what is there is
        taken for ours: an earlier try may have been committed."""
        known = yield from self._get([draft.id for draft in drafts])
        if any(job is not None for job in known):
            # All or none were stored; a key may have led some of them to another job.
            found = {job.id: Enqueued(job, created) for job in known if job is not None}
            rest = [draft for draft in drafts if draft.id not in found]
            others = (yield from self._enqueue(rest, now)) if rest else []
            found |= {draft.id: other for draft, other in zip(rest, others, strict=True)}
            return [found[draft.id] for draft in drafts]
        return (yield from self._enqueue(drafts, now))

    def _enqueue(self, drafts: Sequence[Draft], now: datetime | None) -> Steps[Sequence[Enqueued]]:
        keyed = KeyedBatch(drafts)
        if not keyed.contenders:
            return (yield from self._insert(drafts, now)) if drafts else []
        answers = yield from self._settle_keys(keyed.contenders, now)
        fresh = [
            draft for draft in drafts if draft.id not in answers and keyed.contender(draft) is draft
        ]
        if fresh:
            stored = yield from self._insert(fresh, now)
            answers |= {draft.id: each for draft, each in zip(fresh, stored, strict=True)}
        answered = []
        for draft in drafts:
            contender = keyed.contender(draft)
            answer = answers[contender.id]
            answered.append(answer if contender is draft else Enqueued(answer.job, created=False))
        return answered

    def _insert_one(self, drafts: Alike) -> Steps[Sequence[Enqueued]]:
        """Store one job that nobody has sent before, in the hope that its lane is there."""
        text, common = _one_like(drafts.template)
        own = {"id": id_of(drafts.ids[0]), "arguments": drafts.arguments[0]}
        rows = yield Statement(self.text(text), common | own)
        if not rows:
            return (yield from self._insert(drafts, None))
        return Stored(drafts, utc(rows[0][0]))

    def _insert(self, drafts: Sequence[Draft], now: datetime | None) -> Steps[Sequence[Enqueued]]:
        template, parameters = insertion(drafts, now)
        ((stored_at, stored),) = yield Statement(self.text(template), parameters)
        instant = utc(stored_at)
        if stored is None:
            return Stored(drafts, instant)
        new = set(stored)
        answers = {
            draft.id: Enqueued(draft, True, False, instant) for draft in drafts if draft.id in new
        }
        repeated = [draft for draft in drafts if draft.id not in answers]
        existing = yield from self._get([draft.id for draft in repeated])
        for draft, found in zip(repeated, existing, strict=True):
            if found is not None:
                answers[draft.id] = Enqueued(found, created=False)
        missing = [draft for draft in repeated if draft.id not in answers]
        if missing:
            # The job with this id was finished and purged between the two statements.
            again = yield from self._insert(missing, now)
            answers |= {draft.id: each for draft, each in zip(missing, again, strict=True)}
        return [answers[draft.id] for draft in drafts]

    def _settle_keys(
        self, contenders: list[Draft], now: datetime | None
    ) -> Steps[dict[UUID, Enqueued]]:
        """Take the keys that are free; answer with the holders of the others."""
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        answers: dict[UUID, Enqueued] = {}
        open_drafts = contenders
        while open_drafts:
            wanted = {
                "tasks": [draft.task for draft in open_drafts],
                "keys": [draft.key for draft in open_drafts],
                "jobs": [draft.id for draft in open_drafts],
                "now": instant,
            }
            taken = yield Statement(self.text(HOLD), wanted)
            taken += yield Statement(self.text(TAKE_OVER), wanted)
            mine = {row[0] for row in taken}
            open_drafts = [draft for draft in open_drafts if draft.id not in mine]
            if not open_drafts:
                break
            rows = yield Statement(self.text(HOLDERS), wanted)
            holders = {(task, key): holder for task, key, holder in rows}
            undecided = []
            for draft in open_drafts:
                holder = holders.get((draft.task, draft.key or ""))
                # Without a holder: it let go of the key between the two statements.
                decided = holder is not None and (
                    yield from self._answer_holder(draft, holder, utc(instant), answers)
                )
                if not decided:
                    undecided.append(draft)
            open_drafts = undecided
        return answers

    def _answer_holder(
        self, draft: Draft, holder: UUID, instant: datetime, answers: dict[UUID, Enqueued]
    ) -> Steps[bool]:
        (existing,) = yield from self._get([holder])
        if existing is None:
            inherited = yield Statement(
                self.text(INHERIT),
                {"task": draft.task, "key": draft.key, "job": draft.id, "holder": holder},
            )
            return bool(inherited)
        if holder == draft.id:
            answers[draft.id] = Enqueued(existing, created=False)
            return True
        refuse_if_rejecting(draft, holder)
        if draft.key_policy is KeyPolicy.REPLACE:
            answers[draft.id] = yield from self._replace(existing, draft, instant)
        else:
            answers[draft.id] = Enqueued(existing, created=False)
        return True

    def _replace(self, existing: JobRecord, draft: Draft, instant: datetime) -> Steps[Enqueued]:
        fresh = replacement(existing, draft, instant)
        values = {name: getattr(fresh, name) for name in JOB_COLUMNS if hasattr(fresh, name)}
        values |= {"delivery": fresh.delivery.value, "tags": list(fresh.tags) or None}
        values |= dict.fromkeys(ERROR_COLUMNS)
        replaced = yield Statement(
            self.text(REPLACE), {name: values[name] for name in (*REPLACEABLE, "id")}
        )
        if not replaced:
            return Enqueued(existing, created=False)
        lane = {"queue": fresh.queue, "task": fresh.task, "priority": fresh.priority}
        yield Statement(self.text(LANE), lane)
        return Enqueued(fresh, created=False, replaced=True)


class _OfNewIds:
    """Stores many jobs of ids that nobody has sent before."""

    def __init__(
        self, text: Callable[[str], str], drafts: Sequence[Draft], now: datetime | None
    ) -> None:
        self._text = text
        self._drafts = drafts
        self._now = now
        self._statement: Statement | None = None

    def make_ready(self) -> Statement:
        """The statement, its parameters as they are sent."""
        if self._statement is None:
            template, parameters = insertion(self._drafts, self._now, unseen=True)
            for name, value in parameters.items():
                if type(value) is list:
                    parameters[name] = as_array(value)
            self._statement = Statement(self._text(template), parameters)
        return self._statement

    def __call__(self) -> Steps[Sequence[Enqueued]]:
        ((stored_at, _),) = yield self.make_ready()
        instant = utc(stored_at)
        return Stored(self._drafts, instant)


def insertion(
    drafts: Sequence[Draft],
    now: datetime | None,
    state: State = State.PENDING,
    unseen: bool = False,
) -> tuple[str, dict[str, Any]]:
    """The template of the statement that stores these drafts in one state, and its parameters.

    It answers with the moment of storing and, if some of the ids were known, with the new ones.
    With `unseen` ids, which nobody has sent before, it fails in that case; these parameters are
    for connections of our own.
    """
    differing, columns = by_field(drafts)
    values: dict[str, Any] = {}
    for name in DRAFT_COLUMNS:
        column = columns[name]
        if name not in differing:
            values[name] = _coded(name, column[0])
        elif name in CODED:
            values[name] = [_coded(name, value) for value in column]
        else:
            values[name] = list(column)
    values["id"] = array_of_ids(values["id"]) if unseen else ids_of(values["id"])
    text = _insert_text(differing.intersection(DRAFT_COLUMNS), state, unseen)
    number = {} if unseen else {"number": len(drafts)}
    return text, {"now": now, **number, **values}


def _coded(name: str, value: Any) -> Any:
    match name:
        case "delivery":
            return value.value
        case "priority":
            return int(value)
        case "tags":
            return json.dumps(value) if value else None
    return value
