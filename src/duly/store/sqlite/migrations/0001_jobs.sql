-- Live jobs only: pending, blocked, running, waiting. Times are microseconds since 1970 in UTC.
CREATE TABLE jobs (
    id                  BLOB NOT NULL,
    task                TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    state               TEXT NOT NULL,
    run_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    arguments           TEXT NOT NULL,
    token               INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    max_attempts        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    max_crashes         INTEGER NOT NULL,
    generation          INTEGER NOT NULL,
    delivery            TEXT NOT NULL,
    alone               INTEGER NOT NULL,
    key                 TEXT,
    key_window          REAL,
    owner               TEXT,
    tenant              TEXT,
    timeout             REAL,
    expires_at          INTEGER,
    tags                TEXT,
    metadata            TEXT,
    parent_id           BLOB,
    flow_id             BLOB,
    schedule_id         TEXT,
    scheduled_for       INTEGER,
    worker              BLOB,
    cancel_requested_at INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    result              TEXT,
    reason              TEXT,
    error_type          TEXT,
    error_message       TEXT,
    error_traceback     TEXT,
    error_fingerprint   TEXT,
    PRIMARY KEY (id)
) STRICT;

-- A claim probes one lane (queue, task, priority) and reads only what is due in it.
CREATE INDEX jobs_lane ON jobs (queue, task, priority, run_at, id) WHERE state = 'pending';
CREATE INDEX jobs_worker ON jobs (worker) WHERE state = 'running';
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;

-- Succeeded and cancelled jobs, until their retention ends.
CREATE TABLE archive (
    id                  BLOB NOT NULL,
    task                TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    state               TEXT NOT NULL,
    run_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    arguments           TEXT NOT NULL,
    token               INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    max_attempts        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    max_crashes         INTEGER NOT NULL,
    generation          INTEGER NOT NULL,
    delivery            TEXT NOT NULL,
    alone               INTEGER NOT NULL,
    key                 TEXT,
    key_window          REAL,
    owner               TEXT,
    tenant              TEXT,
    timeout             REAL,
    expires_at          INTEGER,
    tags                TEXT,
    metadata            TEXT,
    parent_id           BLOB,
    flow_id             BLOB,
    schedule_id         TEXT,
    scheduled_for       INTEGER,
    worker              BLOB,
    cancel_requested_at INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    result              TEXT,
    reason              TEXT,
    error_type          TEXT,
    error_message       TEXT,
    error_traceback     TEXT,
    error_fingerprint   TEXT,
    PRIMARY KEY (id)
) STRICT;
CREATE INDEX archive_finished ON archive (state, finished_at);

-- Jobs that exhausted their attempts, with everything needed to inspect and replay them.
CREATE TABLE dead (
    id                  BLOB NOT NULL,
    task                TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    state               TEXT NOT NULL,
    run_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    arguments           TEXT NOT NULL,
    token               INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    max_attempts        INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    max_crashes         INTEGER NOT NULL,
    generation          INTEGER NOT NULL,
    delivery            TEXT NOT NULL,
    alone               INTEGER NOT NULL,
    key                 TEXT,
    key_window          REAL,
    owner               TEXT,
    tenant              TEXT,
    timeout             REAL,
    expires_at          INTEGER,
    tags                TEXT,
    metadata            TEXT,
    parent_id           BLOB,
    flow_id             BLOB,
    schedule_id         TEXT,
    scheduled_for       INTEGER,
    worker              BLOB,
    cancel_requested_at INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    result              TEXT,
    reason              TEXT,
    error_type          TEXT,
    error_message       TEXT,
    error_traceback     TEXT,
    error_fingerprint   TEXT,
    PRIMARY KEY (id)
) STRICT;
CREATE INDEX dead_finished ON dead (finished_at);
CREATE INDEX dead_fingerprint ON dead (error_fingerprint);

-- Every lane that ever had a job. Claims go through it, so that jobs of tasks that no live worker
-- knows are never read.
CREATE TABLE lanes (
    queue    TEXT NOT NULL,
    task     TEXT NOT NULL,
    priority INTEGER NOT NULL,
    PRIMARY KEY (queue, task, priority)
) STRICT, WITHOUT ROWID;

-- Who holds a key: a live job, or a finished one until held_until.
CREATE TABLE keys (
    task       TEXT NOT NULL,
    key        TEXT NOT NULL,
    job_id     BLOB NOT NULL,
    held_until INTEGER,
    PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_held_until ON keys (held_until) WHERE held_until IS NOT NULL;

CREATE TABLE attempts (
    job_id            BLOB NOT NULL,
    token             INTEGER NOT NULL,
    number            INTEGER NOT NULL,
    generation        INTEGER NOT NULL,
    worker            BLOB,
    started_at        INTEGER NOT NULL,
    ended_at          INTEGER NOT NULL,
    outcome           TEXT NOT NULL,
    error_type        TEXT,
    error_message     TEXT,
    error_traceback   TEXT,
    error_fingerprint TEXT,
    PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id              BLOB PRIMARY KEY,
    name            TEXT NOT NULL,
    machine         TEXT NOT NULL,
    pid             INTEGER NOT NULL,
    process_started INTEGER NOT NULL,
    queues          TEXT NOT NULL,
    tasks           TEXT NOT NULL,
    version         TEXT NOT NULL,
    started_at      INTEGER NOT NULL,
    lease_until     INTEGER NOT NULL
) STRICT;

CREATE TABLE paused_queues (
    queue TEXT PRIMARY KEY,
    note  TEXT
) STRICT;

CREATE TABLE catalogue (
    name  TEXT PRIMARY KEY,
    entry TEXT NOT NULL
) STRICT;

-- What jobs say of themselves while they run.
CREATE TABLE progress (
    job_id   BLOB PRIMARY KEY,
    token    INTEGER NOT NULL,
    fraction REAL NOT NULL,
    message  TEXT NOT NULL,
    at       INTEGER NOT NULL
) STRICT;
CREATE TABLE log_lines (
    number  INTEGER PRIMARY KEY,
    job_id  BLOB NOT NULL,
    token   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    logger  TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX log_lines_job ON log_lines (job_id);
