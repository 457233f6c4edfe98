-- Whether a job has recorded steps; how many compensations it has registered; and, while these
-- run, the final state that follows.
ALTER TABLE jobs ADD COLUMN stepped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN undos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN undoing TEXT;
ALTER TABLE archive ADD COLUMN stepped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE archive ADD COLUMN undos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE archive ADD COLUMN undoing TEXT;
ALTER TABLE dead ADD COLUMN stepped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN undos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN undoing TEXT;

-- A suspended job is claimed when its time comes, as a pending one is.
DROP INDEX jobs_lane;
CREATE INDEX jobs_lane ON jobs (queue, task, priority, run_at, id)
    WHERE state IN ('pending', 'waiting');

CREATE TABLE steps (
    job_id        BLOB NOT NULL,
    name          TEXT NOT NULL,
    key           TEXT NOT NULL,
    kind          TEXT NOT NULL,
    state         TEXT NOT NULL,
    number        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    tries         INTEGER NOT NULL,
    fingerprint   TEXT,
    result        TEXT,
    error_type    TEXT,
    error_message TEXT,
    until         INTEGER,
    child_id      BLOB,
    event_id      TEXT,
    at            INTEGER NOT NULL,
    PRIMARY KEY (job_id, name, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX steps_at ON steps (at);

CREATE TABLE events (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL,
    name    TEXT NOT NULL,
    key     TEXT,
    payload TEXT NOT NULL,
    job_id  BLOB,
    at      INTEGER NOT NULL,
    UNIQUE (id)
) STRICT;
CREATE INDEX events_key ON events (name, key, number);
CREATE INDEX events_name ON events (name, number);
CREATE INDEX events_at ON events (at);

-- Which events suspended jobs wait for.
CREATE TABLE waits (
    job_id BLOB NOT NULL,
    name   TEXT NOT NULL,
    key    TEXT
) STRICT;
CREATE INDEX waits_job ON waits (job_id);
CREATE INDEX waits_name ON waits (name, key);

-- Tasks that are started for events, as running code declares them.
CREATE TABLE subscriptions (
    name       TEXT PRIMARY KEY,
    definition TEXT NOT NULL,
    last_seen  INTEGER NOT NULL
) STRICT;
