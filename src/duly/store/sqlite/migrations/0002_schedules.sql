-- Rules that make jobs. `definition` is a JSON text that is written and compared as a whole; what
-- statements read of it has columns of its own.
CREATE TABLE schedules (
    id                   TEXT PRIMARY KEY,
    definition           TEXT NOT NULL,
    fingerprint          TEXT,
    paused               INTEGER NOT NULL,
    note                 TEXT,
    accounted_until      INTEGER NOT NULL,
    next_at              INTEGER,
    due_at               INTEGER,
    awaits_end           INTEGER NOT NULL,
    skipping_since       INTEGER,
    failures_in_a_row    INTEGER NOT NULL,
    last_finished_at     INTEGER,
    last_success_for     INTEGER,
    last_result          TEXT,
    revision             INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    application          TEXT,
    pause_after_failures INTEGER
) STRICT;

-- A scheduler reads what is due, and the first time to come: one look at this index each.
CREATE INDEX schedules_due ON schedules (due_at) WHERE paused = 0 AND due_at IS NOT NULL;

-- What became of each nominal time, or of a run of them up to `until`.
CREATE TABLE ticks (
    schedule_id TEXT NOT NULL,
    nominal     INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    reason      TEXT,
    until       INTEGER,
    count       INTEGER NOT NULL,
    job_id      BLOB,
    at          INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, nominal, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX ticks_buffered ON ticks (schedule_id, nominal) WHERE outcome = 'buffered';
CREATE INDEX ticks_at ON ticks (at);

-- Schedules as the code of running nodes declares them.
CREATE TABLE declarations (
    application TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    definition  TEXT NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    PRIMARY KEY (application, schedule_id, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_schedule ON jobs (schedule_id) WHERE schedule_id IS NOT NULL;
